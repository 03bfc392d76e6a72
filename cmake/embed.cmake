# Writes the files of the page as constant arrays: cmake -DOUTPUT=FILE.c -DFILES=PATH=SOURCE;... -P embed.cmake
# PATH is what a browser asks for, SOURCE the file; its suffix says which media type it has.
set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(arrays "")
set(rows "")
set(number 0)
foreach(entry IN LISTS FILES)
    string(REPLACE "=" ";" parts "${entry}")
    list(GET parts 0 path)
    list(GET parts 1 source)
    string(REGEX REPLACE ".*\\." "type_" type ${source})
    file(READ ${source} hex HEX)
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n"
           bytes "${bytes}")
    string(APPEND arrays "static const uint8_t file_${number}[] = {\n${bytes}};\n")
    string(APPEND rows "    {\"${path}\", \"${${type}}\", file_${number}, sizeof(file_${number})},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Made by cmake/embed.cmake.
#include \"aggregator/page/page.h\"

${arrays}
static const struct cn_page_file files[] = {
${rows}};

const struct cn_page_file *cn_page_files(size_t *count)
{
    *count = sizeof(files) / sizeof(files[0]);
    return files;
}
")
