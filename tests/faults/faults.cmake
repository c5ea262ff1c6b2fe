# Faults: what happens when reads of the model misbehave (faulty.c, run-faults.sh). Included by tests/CMakeLists.txt.
# Not in builds with sanitizers: their run-time library must come before anything that is preloaded.
if(NOT SLUICE_SANITIZE)
    add_library(sluice-faulty SHARED ${CMAKE_CURRENT_LIST_DIR}/faulty.c)
    target_link_libraries(sluice-faulty PRIVATE sluice_options ${CMAKE_DL_LIBS})
    add_executable(faults-layout ${CMAKE_CURRENT_LIST_DIR}/layout.c)
    target_link_libraries(faults-layout PRIVATE sluice_options llama_ggml)
    add_executable(faults-lost ${CMAKE_CURRENT_LIST_DIR}/lost.c ${CMAKE_CURRENT_LIST_DIR}/../gates/backends.c)
    target_include_directories(faults-lost PRIVATE ${CMAKE_CURRENT_LIST_DIR}/../gates)
    target_link_libraries(faults-lost PRIVATE sluice_options llama_llama ${CMAKE_DL_LIBS})
    set_target_properties(faults-lost PROPERTIES ENABLE_EXPORTS ON) # its mremap is the plug-in's
    file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/faults)
    foreach(what harmless fatal cold run lost)
        add_test(NAME faults-${what} COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/run-faults.sh ${what})
        # The timeout only ends a hang.
        set_tests_properties(faults-${what} PROPERTIES LABELS faults TIMEOUT 1800
            ENVIRONMENT "BIN=${CMAKE_BINARY_DIR}/bin;LLAMA_SRC=${SLUICE_LLAMA_SOURCE_DIR};WORK=${CMAKE_BINARY_DIR}/faults;OMP_WAIT_POLICY=passive")
    endforeach()
endif()
