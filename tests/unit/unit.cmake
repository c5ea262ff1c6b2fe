# Unit tests: one cmocka program per module of src/cache, src/memory, src/trace, src/bench and src/window. Included by tests/CMakeLists.txt.
#
# They link the modules built anew with assertions on, whatever the build type is: an assertion
# that only release builds skip protects nobody. Neither ggml nor llama.cpp is linked, which proves
# that these folders need neither.
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)

file(GLOB unit_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cache/*.c ${CMAKE_SOURCE_DIR}/src/memory/*.c
    ${CMAKE_SOURCE_DIR}/src/observe/*.c ${CMAKE_SOURCE_DIR}/src/trace/*.c ${CMAKE_SOURCE_DIR}/src/bench/*.c ${CMAKE_SOURCE_DIR}/src/window/*.c)
# Of src/run the parts that know no llama.cpp.
list(APPEND unit_sources ${CMAKE_SOURCE_DIR}/src/run/quality.c ${CMAKE_SOURCE_DIR}/src/run/reference.c)
add_library(sluice_checked STATIC ${unit_sources} ${CMAKE_CURRENT_LIST_DIR}/unit.c)
target_link_libraries(sluice_checked PUBLIC sluice_options PkgConfig::CMOCKA PkgConfig::JANSSON PkgConfig::MICROHTTPD
    Threads::Threads m)
target_compile_options(sluice_checked PUBLIC -UNDEBUG)
target_include_directories(sluice_checked PUBLIC ${CMAKE_CURRENT_LIST_DIR})

# Temporary files lie in the build tree: direct I/O needs a file system on a disk, which /tmp need not be.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/unit)
foreach(unit event batch file direct expert_index policy slots io idle engine hold resize warm prefetch guess shadow limits ledger predict settings timing csv stat trace replay bench_stats bench_csv machine quality
    address window window_http window_events)
    add_executable(unit-${unit} ${CMAKE_CURRENT_LIST_DIR}/test_${unit}.c)
    target_link_libraries(unit-${unit} PRIVATE sluice_checked)
    add_test(NAME unit-${unit} COMMAND unit-${unit} WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/unit)
    # The timeout only ends a hang; no test looks at a clock.
    set_tests_properties(unit-${unit} PROPERTIES LABELS unit TIMEOUT 600)
endforeach()
foreach(unit io idle)
    target_sources(unit-${unit} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/io_fixture.c)
endforeach()
foreach(unit window_http window_events)
    target_sources(unit-${unit} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/window_fixture.c)
endforeach()
# It stands in for functions of the C library, and calls the library's.
target_link_libraries(unit-direct PRIVATE ${CMAKE_DL_LIBS})
# Pages of other sizes; also of what src/ggml maps, which needs no ggml. Sanitizers have their own idea of pages.
if(NOT SLUICE_SANITIZE)
    add_executable(unit-page ${CMAKE_CURRENT_LIST_DIR}/test_page.c ${CMAKE_CURRENT_LIST_DIR}/../gates/pagesize.c
        ${CMAKE_SOURCE_DIR}/src/ggml/pages.c ${CMAKE_SOURCE_DIR}/src/ggml/dense.c ${CMAKE_SOURCE_DIR}/src/ggml/maps.c)
    target_include_directories(unit-page PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../gates)
    target_link_libraries(unit-page PRIVATE sluice_checked ${CMAKE_DL_LIBS})
    add_test(NAME unit-page COMMAND unit-page WORKING_DIRECTORY ${CMAKE_BINARY_DIR}/unit)
    set_tests_properties(unit-page PROPERTIES LABELS unit TIMEOUT 600)
endif()
# The executor's way of pinning experts: of ggml it needs types only.
target_sources(unit-hold PRIVATE ${CMAKE_SOURCE_DIR}/src/ggml/hold.c ${CMAKE_SOURCE_DIR}/src/ggml/route.c)
target_include_directories(unit-hold PRIVATE $<TARGET_PROPERTY:llama_ggml,INTERFACE_INCLUDE_DIRECTORIES>)
foreach(unit engine hold resize warm prefetch shadow)
    target_sources(unit-${unit} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/engine_fixture.c)
    target_link_libraries(unit-${unit} PRIVATE ${CMAKE_DL_LIBS})
endforeach()

add_test(NAME include-rules COMMAND bash ${CMAKE_SOURCE_DIR}/tests/include-rules.sh ${CMAKE_SOURCE_DIR})
set_tests_properties(include-rules PROPERTIES LABELS unit TIMEOUT 600)
if(NOT SLUICE_SANITIZE) # which adds symbols of its own
    add_test(NAME circles COMMAND bash ${CMAKE_SOURCE_DIR}/tests/circles.sh ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR})
    set_tests_properties(circles PROPERTIES LABELS unit TIMEOUT 600)
endif()

# Once more under sanitizers, in build trees of their own (sanitize.sh). Leave them out with `ctest -LE sanitize`.
if(NOT SLUICE_SANITIZE)
    foreach(kind address thread)
        foreach(part few all)
            add_test(NAME sanitize-${kind}-${part} COMMAND bash ${CMAKE_SOURCE_DIR}/tests/sanitize.sh
                ${CMAKE_BINARY_DIR}/sanitize ${part} ${kind})
            # The timeout only ends a hang; the first run of `thread` builds llama.cpp.
            set_tests_properties(sanitize-${kind}-${part} PROPERTIES LABELS sanitize TIMEOUT 5400 PROCESSORS 2
                RESOURCE_LOCK sanitize-${kind})
        endforeach()
    endforeach()
endif()
