narrow
