# node-llama-cpp with npm's prebuilt libraries, as its users run it (node.sh). Skipped where it cannot be had.
if(COMMAND sluice_release_test)
    foreach(release v0.4.0 v0.5.0)
        sluice_release_test(node-${release} ${CMAKE_CURRENT_LIST_DIR}/node.sh ${release})
    endforeach()
    # Each builds against npm's libraries in the directory of the release's other test.
    set_tests_properties(releases-v0.4.0 node-v0.4.0 PROPERTIES RESOURCE_LOCK npm-v0.4.0)
    set_tests_properties(releases-v0.5.0-dl node-v0.5.0 PROPERTIES RESOURCE_LOCK npm-v0.5.0)
endif()
