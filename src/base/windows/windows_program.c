/* SPDX-License-Identifier: Apache-2.0 */
/* windows_program.c - wmain of a program that is written for POSIX: it calls what main.c has as main.
 *
 * Method  Arguments and environment come in UTF-16 and go on in UTF-8, whatever the code page is; standard
 *         streams are binary, the console shows UTF-8, HOME and TMPDIR name what Windows has for them. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include "base/windows/service.h"
#include "base/windows/utf16.h"

int wmain(int argc, wchar_t **argv);

static char *to_utf8(const wchar_t *text) {
    const int size = WideCharToMultiByte(CP_UTF8, 0, text, -1, NULL, 0, NULL, NULL);
    char     *out  = malloc((size_t)size + 1);
    if (out == NULL)
        exit(1);
    (void)WideCharToMultiByte(CP_UTF8, 0, text, -1, out, size, NULL, NULL);
    return out;
}

/* "NAME=value" of which the value is not ASCII; what is, the C library has right. */
static void take_variable(const wchar_t *variable) {
    bool plain = true;
    for (const wchar_t *at = variable; *at != 0; at++)
        plain = plain && *at < 128;
    if (!plain) {
        char *text = to_utf8(variable);
        (void)_putenv(text);
        free(text);
    }
}

/* A folder that Windows knows under another name. */
static void take_folder(const char *name, const wchar_t *path) {
    char text[PATH_MAX];
    if (getenv(name) == NULL && path != NULL && fl_wide_to_text(path, text, sizeof text)) {
        text[strlen(text) - (text[0] != '\0' && text[strlen(text) - 1] == '/')] = '\0';
        (void)_putenv_s(name, text);
    }
}

int wmain(int argc, wchar_t **argv) {
    wchar_t folder[MAX_PATH + 1] = L"";
    char  **words                = calloc((size_t)argc + 1, sizeof *words);
    for (int fd = 0; fd <= 2; fd++)
        (void)_setmode(fd, _O_BINARY);
    (void)SetConsoleOutputCP(CP_UTF8);
    for (wchar_t **variable = _wenviron; variable != NULL && *variable != NULL; variable++)
        take_variable(*variable);
    take_folder("HOME", _wgetenv(L"USERPROFILE"));
    take_folder("TMPDIR", GetTempPathW(MAX_PATH + 1, folder) > 0 ? folder : NULL);
    for (int i = 0; words != NULL && i < argc; i++)
        words[i] = to_utf8(argv[i]);
    return words == NULL ? 1 : fl_windows_run(argc, words);
}
