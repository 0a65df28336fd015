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
# a53: NEON alone; neoverse-n1: dotprod as well; max: i8mm as well. Each runs the tier made for it.
set(NW_ARM_CPUS cortex-a53 neoverse-n1 max)
set(test_linear_with tests/kernels/random_matrix.c)
foreach(test unit/test_half unit/test_panel kernels/test_pick kernels/test_linear kernels/test_ops
        kernels/test_attention)
    get_filename_component(name ${test} NAME)
    add_executable(${name} tests/${test}.c ${${name}_with})
    target_link_libraries(${name} PRIVATE narrow)
    foreach(cpu ${NW_ARM_CPUS})
        add_test(NAME ${name}_${cpu} COMMAND qemu-aarch64 -cpu ${cpu} $<TARGET_FILE:${name}>)
        set_tests_properties(${name}_${cpu} PROPERTIES LABELS arm TIMEOUT 600
            ENVIRONMENT NW_TEST_BEST_TIER=1)
    endforeach()
endforeach()
