// docs/operators.md lists the operators that the importer has, no others.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/import/import.h"

#define PAGE CAIRN_TEST_DATA "/../../docs/operators.md"
#define HEADING "# Operators"

static char text[1 << 16];

// The names between the heading and the next blank line but one, joined by ", ".
static char *listed(void)
{
    FILE *file = fopen(PAGE, "r");
    char *start;

    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    start = strstr(text, HEADING);
    assert_non_null(start);
    start = strstr(start, "\n\n") + 2;
    start = strstr(start, "\n\n") + 2; // behind the paragraph that introduces them
    *strstr(start, "\n\n") = '\0';
    for (char *at = start; *at; at++)
        if (*at == '\n')
            *at = ' ';
    return start;
}

static void the_page_lists_every_operator_and_no_other(void **state)
{
    char *name = strtok(listed(), ", ");
    size_t i = 0;

    (void)state;
    for (; name; name = strtok(NULL, ", "), i++) {
        if (!cn_import_op_name(i))
            fail_msg("%s is listed but cannot be imported", name);
        if (strcmp(name, cn_import_op_name(i)) != 0)
            fail_msg("found %s, wanted %s", name, cn_import_op_name(i));
    }
    if (cn_import_op_name(i))
        fail_msg("%s is not listed", cn_import_op_name(i));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_lists_every_operator_and_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
