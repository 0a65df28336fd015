# Threads come from what the process may use: one allowed processor is one thread, and it is printed.
first=$(taskset -cp $$ | sed 's/.*: //;s/[-,].*//')
taskset -c "$first" narrow doctor --json | sed -n '/"n_threads": 1,$/p;/threads_because/p' | head -n 2
