# What another architecture is tested with: formats, kernels, what they need of base, and their tests,
# which run under qemu on processors of three kinds. Without the libraries of the rest: tests/arm has
# the few functions of cmocka that these tests use, and a log without JSON.
add_library(narrow STATIC src/base/cpu.c src/base/file.c src/base/rng.c src/base/status.c
    tests/arm/log.c ${NW_FORMATS_SOURCES} ${NW_KERNELS_SOURCES})
target_include_directories(narrow PUBLIC include src tests/arm tests)
target_compile_definitions(narrow PUBLIC ${NW_DEFINITIONS})
target_compile_options(narrow PUBLIC ${NW_WARNINGS})
target_link_libraries(narrow PUBLIC Threads::Threads m)

enable_testing()
# the tier of each CPU: NEON alone, dotprod as well, i8mm as well
set(NW_ARM_TIERS cortex-a53:neon neoverse-n1:dotprod max:i8mm)
set(test_linear_with tests/kernels/random_matrix.c)
foreach(test unit/test_half unit/test_panel kernels/test_pick kernels/test_linear kernels/test_ops
        kernels/test_attention)
    get_filename_component(name ${test} NAME)
    add_executable(${name} tests/${test}.c ${${name}_with})
    target_link_libraries(${name} PRIVATE narrow)
    # gcc 12.2 for AArch64 breaks down while it makes vectors of a loop of test_attention.c
    target_compile_options(${name} PRIVATE -fno-tree-vectorize)
    foreach(pair ${NW_ARM_TIERS})
        string(REPLACE ":" ";" pair ${pair})
        list(GET pair 0 cpu)
        list(GET pair 1 tier)
        add_test(NAME ${name}_${tier} COMMAND qemu-aarch64 -cpu ${cpu} $<TARGET_FILE:${name}>)
        set_tests_properties(${name}_${tier} PROPERTIES LABELS arm TIMEOUT 600
            ENVIRONMENT NW_TEST_TIER=${tier})
    endforeach()
endforeach()
