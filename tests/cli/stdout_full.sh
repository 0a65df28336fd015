# A result that cannot be written is a failure, not silence.
narrow help >/dev/full
