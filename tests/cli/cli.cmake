# Tests of the command: what a user types and what comes back. Included by tests/CMakeLists.txt.
# Environment of every script: BIN (our programs), LLAMA_BIN and LLAMA_SRC (llama.cpp's), WORK (a
# directory to write in). The model that they share is made by the fixture cli-model.
add_executable(cli-terminal ${CMAKE_CURRENT_LIST_DIR}/terminal.c)
target_link_libraries(cli-terminal PRIVATE sluice_options util)
add_executable(cli-mapping ${CMAKE_CURRENT_LIST_DIR}/mapping.c)
target_link_libraries(cli-mapping PRIVATE sluice_options Threads::Threads)
# The same program twice: ggml linked in, as stock programs have it, and opened later, as node has it.
add_executable(cli-devices ${CMAKE_CURRENT_LIST_DIR}/devices.c)
target_link_libraries(cli-devices PRIVATE sluice_options llama_llama ${CMAKE_DL_LIBS})
target_link_options(cli-devices PRIVATE -Wl,--no-as-needed)
add_executable(cli-devices-late ${CMAKE_CURRENT_LIST_DIR}/devices.c)
target_link_libraries(cli-devices-late PRIVATE sluice_options ${CMAKE_DL_LIBS})
# Unit tests of the parts that need no process around them.
add_executable(cli-unit ${CMAKE_CURRENT_LIST_DIR}/unit.c ${CMAKE_SOURCE_DIR}/src/run/utf8.c ${CMAKE_SOURCE_DIR}/src/run/ubatch.c
    ${CMAKE_SOURCE_DIR}/src/run/log.c
    ${CMAKE_SOURCE_DIR}/src/cli/args.c ${CMAKE_SOURCE_DIR}/src/cli/options.c ${CMAKE_SOURCE_DIR}/src/cli/text.c
    ${CMAKE_SOURCE_DIR}/src/cli/progress.c ${CMAKE_SOURCE_DIR}/src/run/prompt_file.c
    ${CMAKE_SOURCE_DIR}/src/gguf/gguf_check.c ${CMAKE_SOURCE_DIR}/src/gguf/gguf_reader.c)
pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
target_link_libraries(cli-unit PRIVATE sluice_static PkgConfig::CMOCKA PkgConfig::XXHASH m)
add_executable(cli-unit-serve ${CMAKE_CURRENT_LIST_DIR}/unit_serve.c ${CMAKE_SOURCE_DIR}/src/cli/address.c
    ${CMAKE_SOURCE_DIR}/src/cli/http.c ${CMAKE_SOURCE_DIR}/src/cli/supervise.c
    ${CMAKE_SOURCE_DIR}/src/cli/args.c ${CMAKE_SOURCE_DIR}/src/cli/options.c)
target_link_libraries(cli-unit-serve PRIVATE sluice_static PkgConfig::CMOCKA m)
add_executable(cli-unit-lines ${CMAKE_CURRENT_LIST_DIR}/unit_lines.c ${CMAKE_SOURCE_DIR}/src/cli/lines.c
    ${CMAKE_SOURCE_DIR}/src/cli/progress.c ${CMAKE_SOURCE_DIR}/src/cli/text.c
    ${CMAKE_SOURCE_DIR}/src/cli/args.c ${CMAKE_SOURCE_DIR}/src/cli/options.c)
target_link_libraries(cli-unit-lines PRIVATE sluice_static PkgConfig::CMOCKA m util)
if(NOT SLUICE_SANITIZE) # their library must come before anything that is preloaded
    add_library(cli-early SHARED ${CMAKE_CURRENT_LIST_DIR}/early.c)
    target_link_libraries(cli-early PRIVATE sluice_options ${CMAKE_DL_LIBS})
endif()

set(cli_environment
    BIN=${CMAKE_BINARY_DIR}/bin
    LLAMA_BIN=${SLUICE_LLAMA_BIN}
    LLAMA_SRC=${SLUICE_LLAMA_SOURCE_DIR}
    WORK=${CMAKE_BINARY_DIR}/cli
    DEMO=${CMAKE_SOURCE_DIR}/models/demo.gguf # cli-serve
    OMP_WAIT_POLICY=passive) # spinning teams crawl on a busy machine; sleeping ones compute the same
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/cli)

add_test(NAME cli-unit COMMAND cli-unit)
add_test(NAME cli-unit-serve COMMAND cli-unit-serve)
add_test(NAME cli-unit-lines COMMAND cli-unit-lines)
set_tests_properties(cli-unit cli-unit-serve cli-unit-lines PROPERTIES LABELS cli TIMEOUT 300)

# The timeouts only end a hang; no test looks at a clock.
function(sluice_cli_test name)
    add_test(NAME cli-${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/${name}.sh)
    set_tests_properties(cli-${name} PROPERTIES ENVIRONMENT "${cli_environment}" TIMEOUT 1800 LABELS cli)
endfunction()

sluice_cli_test(make-model)
set_tests_properties(cli-make-model PROPERTIES FIXTURES_SETUP cli-model)
set(cli_tests pages bad-input damage run prompt-cache chat memory plan bench csv counters top window replay eval lossy)
if(NOT SLUICE_SANITIZE)
    # A library with a sanitizer in it cannot be preloaded into a program without.
    list(APPEND cli_tests exec mapping cold serve)
endif()
foreach(test IN LISTS cli_tests)
    sluice_cli_test(${test})
    set_tests_properties(cli-${test} PROPERTIES FIXTURES_REQUIRED cli-model SKIP_RETURN_CODE 77)
endforeach()
