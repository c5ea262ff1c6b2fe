# The self-test that runs before the first load: each assumption about ggml is broken once. Included by tests/CMakeLists.txt.
add_executable(selftest-check ${CMAKE_CURRENT_LIST_DIR}/check.c)
target_link_libraries(selftest-check PRIVATE sluice_static)
if(NOT SLUICE_SANITIZE) # their library must come before anything that is preloaded
    add_library(sluice-broken SHARED ${CMAKE_CURRENT_LIST_DIR}/broken.c)
    target_link_libraries(sluice-broken PRIVATE sluice_options ${CMAKE_DL_LIBS})
    # Headers only: with the libraries behind it, it would stand behind them where a program loads them first.
    target_include_directories(sluice-broken SYSTEM PRIVATE ${SLUICE_LLAMA_SOURCE_DIR}/ggml/include)
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/selftest)
    add_test(NAME selftest COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run-selftest.sh)
    # The timeout only ends a hang.
    set_tests_properties(selftest PROPERTIES LABELS selftest TIMEOUT 600 PROCESSORS 2
        ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_SRC=${SLUICE_LLAMA_SOURCE_DIR};WORK=${CMAKE_BINARY_DIR}/selftest;SOURCE=${CMAKE_SOURCE_DIR};OMP_WAIT_POLICY=passive")
endif()
