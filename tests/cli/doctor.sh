# The machine as text and as JSON, with the features hidden that tests can hide.
NW_CPU_MASK=ref narrow doctor --threads 1
NW_CPU_MASK=ref narrow doctor -t1 --json
