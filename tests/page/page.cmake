# The window's page in a real browser: against a made-up program, and against the real one.
if(NOT SLUICE_SANITIZE)
    add_test(NAME page-mock COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run.sh mock ${CMAKE_BINARY_DIR}/page-mock)
    set_tests_properties(page-mock PROPERTIES TIMEOUT 900)
endif()
