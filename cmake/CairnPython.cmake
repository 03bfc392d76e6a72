# cairn_find_python(RESULT MODULE...): sets RESULT to a Python that has all modules, or to "" with a
# message. A system often has several: the distribution's /usr/bin/python3 has the packaged modules, and
# CAIRN_PYTHON may name one with newer ones.
function(cairn_find_python result)
    set(${result} "" PARENT_SCOPE)
    set(search "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, sys.argv[1:])))")
    find_program(path_python python3)
    foreach(python ${CAIRN_PYTHON} ${path_python} /usr/bin/python3)
        execute_process(COMMAND ${python} -c "${search}" ${ARGN} RESULT_VARIABLE failed
                        OUTPUT_QUIET ERROR_QUIET)
        if(failed EQUAL 0)
            set(${result} ${python} PARENT_SCOPE)
            return()
        endif()
    endforeach()
    message(STATUS "No Python with ${ARGN}: tests that need it are left out")
endfunction()
