# cairn_find_python(RESULT MODULE...): sets RESULT to a Python that imports all modules, or to "" with a
# message. A system often has several: the distribution's /usr/bin/python3 has the packaged modules.
function(cairn_find_python result)
    set(${result} "" PARENT_SCOPE)
    string(REPLACE ";" ", " modules "${ARGN}")
    find_program(path_python python3)
    foreach(python ${path_python} /usr/bin/python3)
        execute_process(COMMAND ${python} -c "import ${modules}" RESULT_VARIABLE failed
                        OUTPUT_QUIET ERROR_QUIET)
        if(failed EQUAL 0)
            set(${result} ${python} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    message(STATUS "No Python with ${modules}: tests that need it are left out")
endfunction()
