# The machine as text and as JSON, with the features hidden that tests can hide; and that the tier which
# doctor names under a mask is the one that an engine then takes, and says so at its start.
NW_CPU_MASK=ref narrow doctor --threads 1
NW_CPU_MASK=ref narrow doctor -t1 --json
bin=$(dirname "$(realpath "$(command -v narrow)")")
"$bin/make_tiny" llama model || exit 1
for mask in none avx512bf16 avx512vbmi avx512 avx512,avxvnni i8mm i8mm,dotprod ref; do
    NW_CPU_MASK=$mask
    [ $mask != none ] || NW_CPU_MASK=
    export NW_CPU_MASK
    tier=$(narrow doctor --threads 1 | sed -n 's/^kernels *//p')
    narrow generate model x -n 2 --json 2>said | grep -q "\"tier\": \"$tier\"" &&
        grep -q "^kernels $tier, " said && echo "mask $mask: the tier of doctor"
done
[ "$tier" = ref ] && echo "all hidden: ref"
NW_CPU_MASK=avx1024 narrow doctor --threads 1 2>&1 | grep "^warning"
