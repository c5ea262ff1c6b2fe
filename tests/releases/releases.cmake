# Other releases and builds of llama.cpp than the one that everything else here is tested with. Short: nothing of
# llama.cpp is compiled, the libraries are npm's prebuilt ones (few.sh). Skipped where they cannot be had.
if(NOT SLUICE_SANITIZE AND NOT SLUICE_LLAMA_RELEASE AND NOT SLUICE_LLAMA_KIND STREQUAL "npm")
    set(releases_environment
        WORK=${CMAKE_BINARY_DIR}/releases
        CMAKE=${CMAKE_COMMAND}
        ARCHS_BIN=${SLUICE_LLAMA_BIN}
        FIXTURES=${CMAKE_BINARY_DIR}/gates/fixtures)
    function(sluice_release_test name)
        add_test(NAME ${name} COMMAND ${ARGN})
        # After gate-archs, which writes the test models; the timeout only ends a hang.
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "${releases_environment}" PROCESSORS 2 TIMEOUT 1800
            SKIP_RETURN_CODE 77 LABELS releases DEPENDS gate-archs)
    endfunction()
    sluice_release_test(releases-v0.4.0 ${CMAKE_CURRENT_LIST_DIR}/few.sh v0.4.0 npm)
    sluice_release_test(releases-v0.5.0-dl ${CMAKE_CURRENT_LIST_DIR}/few.sh v0.5.0 npm)
    sluice_release_test(releases-debian ${CMAKE_CURRENT_LIST_DIR}/debian.sh)
endif()
