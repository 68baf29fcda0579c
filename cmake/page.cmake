# SPDX-License-Identifier: Apache-2.0
# cmake -DIN=page.html -DOUT=page.c -DNAME=page -P page.cmake: a file's bytes as a C array, without another tool.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(....,....,....,....,....,....,....,....,....,....,....,....,....,....,....,....,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made of ${IN} by cmake/page.cmake. */
#include \"server/pages.h\"
const unsigned char fl_page_${NAME}[] = {
${bytes}};
const size_t fl_page_${NAME}_size = sizeof fl_page_${NAME};
")
