# Every long option of every command stands in a test that runs the program: on a line with the command
# or in a script that is about it. (--help of each: help_of_every_command.sh.)
list=$(narrow help | sed -n 's/^  \([a-z-]*\) .*/\1/p')
[ "$(echo "$list" | wc -l)" -ge 10 ] || exit 1
# What scripts of the command hold: those that name it as `narrow CMD`, as a word of their own helper
# (`try CMD`, `run CMD`) or as a string in Python.
for c in $list; do
    grep -rlE "(narrow|try|run|bad|refused)\(?\"? *$c |[\"']$c[\"']" "$source_dir/tests/cli" "$source_dir/tests/e2e" \
        "$source_dir/tests/server" "$source_dir/tests/interop" --include='*.sh' --include='*.py' |
        grep -v every_option_is_tested >files
    options=$(narrow help "$c" | sed -n 's/^  \(-[a-zA-Z], \|    \)--\([a-z0-9-]*\).*/\2/p')
    [ -n "$options" ] || exit 1
    for o in $options; do
        [ "$o" != help ] || continue
        if [ ! -s files ] || ! xargs grep -qE -e "--$o([= \"',\`)]|\$)" <files; then
            echo "narrow $c --$o: no test uses it"
        fi
    done
done
