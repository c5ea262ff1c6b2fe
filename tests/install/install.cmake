# Tests of what `cmake --install` and `cpack -G DEB` make of this build tree. Included by tests/CMakeLists.txt.
if(SLUICE_SANITIZE)
    return() # nobody installs those
endif()
set(install_environment
    BUILD=${CMAKE_BINARY_DIR}
    SRC=${CMAKE_SOURCE_DIR}
    LLAMA_BIN=${SLUICE_LLAMA_BIN}
    TREE=${CMAKE_BINARY_DIR}/installed # made by the test `install`, read by the others
    OMP_WAIT_POLICY=passive)

# The timeouts only end a hang.
function(sluice_install_test name script)
    add_test(NAME ${name} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/${script}.sh)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT "${install_environment}" TIMEOUT 1800 LABELS install
        SKIP_RETURN_CODE 77)
endfunction()

sluice_install_test(install tree)
set_tests_properties(install PROPERTIES FIXTURES_SETUP installed PROCESSORS 2)
foreach(part embed pages licenses)
    sluice_install_test(install-${part} ${part})
    set_tests_properties(install-${part} PROPERTIES FIXTURES_REQUIRED installed)
endforeach()
sluice_install_test(install-deb deb)
set_tests_properties(install-deb PROPERTIES PROCESSORS 2)
