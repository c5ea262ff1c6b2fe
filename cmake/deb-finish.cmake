# deb-finish.cmake - run by CPack between installing into a directory and packing it: what Debian wants besides.
set(root "${CPACK_TEMPORARY_DIRECTORY}/usr")
set(doc "${root}/share/doc/sluice")

function(run)
    execute_process(COMMAND ${ARGN} RESULT_VARIABLE rc)
    if(NOT rc EQUAL 0)
        message(FATAL_ERROR "${ARGN} failed")
    endif()
endfunction()

# The copyright file: every licence text of the installation, each with what it is of.
file(STRINGS "${doc}/licenses/INDEX" rows)
file(WRITE "${doc}/copyright" "This package holds sluice and what it is made of. Each part has its own licence.\n")
foreach(row IN LISTS rows)
    string(REGEX MATCH "^([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$" _ "${row}")
    set(name "${CMAKE_MATCH_1}")
    set(licence "${CMAKE_MATCH_2}")
    set(part "${CMAKE_MATCH_3}")
    set(files "${CMAKE_MATCH_4}")
    string(REPLACE " " " /usr/" files "/usr/${files}")
    string(REPEAT "-" 78 rule)
    file(APPEND "${doc}/copyright" "\n${rule}\n${part}\nLicence: ${licence}\nFiles: ${files}\n\n")
    if(licence STREQUAL "Apache-2.0") # Debian has that one in every system, and wants it named and not repeated
        file(APPEND "${doc}/copyright" "The text is in /usr/share/common-licenses/Apache-2.0.\n")
    else()
        file(READ "${doc}/licenses/${name}" text)
        file(APPEND "${doc}/copyright" "${text}\n")
    endif()
endforeach()
file(REMOVE "${doc}/LICENSE")

# Manual pages and the changelog, compressed so that the same input gives the same bytes.
string(TIMESTAMP now "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${doc}/changelog" "sluice (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n\n  * See the history of the source.\n
 -- ${CPACK_PACKAGE_CONTACT}  ${now}\n")
file(GLOB pages "${root}/share/man/man1/*.1")
foreach(file IN LISTS pages ITEMS "${doc}/changelog")
    run(gzip -9nf "${file}")
endforeach()

# zsh of Debian looks for packages' completions here.
file(MAKE_DIRECTORY "${root}/share/zsh/vendor-completions")
file(RENAME "${root}/share/zsh/site-functions/_sluice" "${root}/share/zsh/vendor-completions/_sluice")
file(REMOVE_RECURSE "${root}/share/zsh/site-functions")

# What CMake strips are its own targets only. Libraries are not executable files in Debian.
file(GLOB libraries "${root}/lib/sluice/*.so*" "${root}/lib/*.a")
foreach(file IN LISTS libraries)
    if(NOT IS_SYMLINK "${file}")
        if(file MATCHES "[.]a$")
            run(strip --strip-debug "${file}")
        else()
            run(strip --strip-unneeded "${file}")
        endif()
        file(CHMOD "${file}" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endif()
endforeach()
if(EXISTS "${root}/lib/sluice/llama-server")
    run(strip --strip-unneeded "${root}/lib/sluice/llama-server")
endif()
