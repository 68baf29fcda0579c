/* SPDX-License-Identifier: Apache-2.0 */
/* windows_files.c - open, read, rename and their kin of posix.h.
 *
 * Memory  Stack only; a path takes 8 KiB of it.
 * Threads any; nothing is kept.
 * Proof   tests/unit/test_base_file.c and tests/golden, under wine: tools/cross.sh windows. */
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <limits.h>
#include <stdarg.h>

#include "base/os.h"
#include "base/windows/utf16.h"

/* ---- Names and errors ------------------------------------------------------------------------ */

bool fl_wide_path(const char *path, wchar_t out[FL_WIDE_MAX]) {
    enum { SHORT_MAX = 240 }; /* a folder's name of more is refused without the long form */
    static const wchar_t prefix[] = L"\\\\?\\";
    wchar_t              plain[FL_WIDE_MAX];
    if (strcmp(path, "/dev/null") == 0)
        path = "NUL";
    const int size =
        MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, plain, FL_WIDE_MAX - 8);
    if (size <= 1) {
        errno = size == 1 ? ENOENT : EINVAL;
        return false;
    }
    for (wchar_t *at = plain; *at != 0; at++)
        *at = *at == L'/' ? L'\\' : *at;
    if (size < SHORT_MAX || wcsncmp(plain, prefix, 4) == 0) {
        memcpy(out, plain, (size_t)size * sizeof *out);
        return true;
    }
    memcpy(out, prefix, sizeof prefix);
    const DWORD full = GetFullPathNameW(plain, FL_WIDE_MAX - 4, out + 4, NULL);
    errno            = ENAMETOOLONG;
    return full > 0 && full < FL_WIDE_MAX - 4;
}

bool fl_wide_to_text(const wchar_t *name, char *out, size_t capacity) {
    const bool shared = wcsncmp(name, L"\\\\?\\UNC\\", 8) == 0;
    if (shared)
        name += 6; /* "C\\server": the C becomes the first of two slashes */
    else if (wcsncmp(name, L"\\\\?\\", 4) == 0)
        name += 4;
    if (WideCharToMultiByte(CP_UTF8, 0, name, -1, out, (int)capacity, NULL, NULL) == 0) {
        errno = ENAMETOOLONG;
        return false;
    }
    out[0] = shared ? '/' : out[0];
    for (char *at = out; *at != '\0'; at++)
        *at = *at == '\\' ? '/' : *at;
    return true;
}

int fl_windows_failed(void) {
    static const struct {
        DWORD windows;
        int   posix;
    } table[]        = {{ERROR_FILE_NOT_FOUND, ENOENT},
                        {ERROR_PATH_NOT_FOUND, ENOENT},
                        {ERROR_INVALID_NAME, ENOENT},
                        {ERROR_BAD_PATHNAME, ENOENT},
                        {ERROR_BAD_NETPATH, ENOENT},
                        {ERROR_DIRECTORY, ENOTDIR},
                        {ERROR_ACCESS_DENIED, EACCES},
                        {ERROR_SHARING_VIOLATION, EACCES},
                        {ERROR_WRITE_PROTECT, EROFS},
                        {ERROR_FILE_EXISTS, EEXIST},
                        {ERROR_ALREADY_EXISTS, EEXIST},
                        {ERROR_DISK_FULL, ENOSPC},
                        {ERROR_HANDLE_DISK_FULL, ENOSPC},
                        {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
                        {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
                        {ERROR_IO_PENDING, EWOULDBLOCK},
                        {ERROR_BROKEN_PIPE, EPIPE},
                        {ERROR_NO_DATA, EPIPE},
                        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
                        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                        {ERROR_NOT_SAME_DEVICE, EXDEV},
                        {ERROR_INVALID_HANDLE, EBADF},
                        {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG}};
    const DWORD last = GetLastError();
    errno            = EIO;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].windows == last)
            errno = table[i].posix;
    return -1;
}

static int done(BOOL ok) {
    return ok ? 0 : fl_windows_failed();
}

static HANDLE handle_of(int fd) {
    return (HANDLE)_get_osfhandle(fd); /* sets errno to EBADF by itself */
}

/* ---- Opening, reading and writing ------------------------------------------------------------ */

enum { SHARED = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE };

int posix_open(const char *path, int flags, ...) {
    wchar_t     name[FL_WIDE_MAX];
    const int   way    = flags & (O_RDONLY | O_WRONLY | O_RDWR);
    const bool  writes = way != O_RDONLY;
    const DWORD rights = way == O_RDONLY   ? GENERIC_READ
                         : way == O_WRONLY ? GENERIC_WRITE
                                           : GENERIC_READ | GENERIC_WRITE;
    const DWORD how = (flags & O_CREAT) == 0   ? flags & O_TRUNC ? TRUNCATE_EXISTING : OPEN_EXISTING
                      : (flags & O_EXCL) != 0  ? CREATE_NEW
                      : (flags & O_TRUNC) != 0 ? CREATE_ALWAYS
                                               : OPEN_ALWAYS;
    if (!fl_wide_path(path, name))
        return -1;
    const DWORD attributes = GetFileAttributesW(name);
    if (writes && attributes != INVALID_FILE_ATTRIBUTES && attributes & FILE_ATTRIBUTE_DIRECTORY) {
        errno = (flags & O_EXCL) != 0 ? EEXIST : EISDIR;
        return -1;
    }
    /* backup semantics: a folder too, to be told by fstat */
    HANDLE file = CreateFileW(name, rights, SHARED, NULL, how, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return fl_windows_failed();
    const int fd =
        _open_osfhandle((intptr_t)file, way | (flags & O_APPEND) | O_BINARY | O_NOINHERIT);
    if (fd < 0)
        CloseHandle(file);
    return fd;
}

ssize_t posix_read(int fd, void *out, size_t size) {
    const int   count = _read(fd, out, size < INT_MAX ? (unsigned)size : INT_MAX);
    struct stat status;
    if (count < 0 && fstat(fd, &status) == 0 && S_ISDIR(status.st_mode))
        errno = EISDIR;
    return count;
}

ssize_t posix_write(int fd, const void *data, size_t size) {
    const int count = _write(fd, data, size < INT_MAX ? (unsigned)size : INT_MAX);
    if (count < 0 && errno == EINVAL)
        errno = EPIPE; /* what the C library makes of a reader that is gone */
    return count;
}

/* The descriptor's own place, which Windows moves and POSIX does not. */
static int64_t seek(int fd, int64_t to) {
    const int64_t before = _lseeki64(fd, 0, SEEK_CUR);
    (void)_lseeki64(fd, to, SEEK_SET);
    return before;
}

/* Several threads may read one file so: where it begins goes with the call. */
ssize_t posix_pread(int fd, void *out, size_t size, int64_t offset) {
    const int64_t before = seek(fd, offset);
    OVERLAPPED    at     = {.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
    DWORD         count  = 0;
    const bool    good =
        ReadFile(handle_of(fd), out, size < INT_MAX ? (DWORD)size : INT_MAX, &count, &at);
    const bool at_end = !good && GetLastError() == ERROR_HANDLE_EOF;
    const int  status = good || at_end ? 0 : done(false);
    (void)seek(fd, before);
    return status == 0 ? (ssize_t)count : -1;
}

ssize_t posix_pwrite(int fd, const void *data, size_t size, int64_t offset) {
    const int64_t before = seek(fd, offset);
    const ssize_t count  = write(fd, data, size);
    (void)seek(fd, before);
    return count;
}

int posix_fsync(int fd) {
    return done(FlushFileBuffers(handle_of(fd)));
}

int posix_flock(int fd, int operation) {
    OVERLAPPED  at   = {.OffsetHigh = 0x7FFFFFFF}; /* of a byte that no file has */
    const DWORD wait = operation & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0;
    const DWORD kind = operation & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0;
    HANDLE      file = handle_of(fd);
    return done(operation & LOCK_UN ? UnlockFileEx(file, 0, 1, 0, &at)
                                    : LockFileEx(file, wait | kind, 0, 1, 0, &at));
}

FILE *posix_fopen(const char *path, const char *mode) {
    wchar_t name[FL_WIDE_MAX], binary[8];
    if (!fl_wide_path(path, name))
        return NULL;
    (void)_snwprintf(binary, sizeof binary / sizeof binary[0], L"%hs%ls", mode,
                     strchr(mode, 'b') != NULL ? L"" : L"b");
    return _wfopen(name, binary);
}

/* ---- Names ----------------------------------------------------------------------------------- */

int posix_rename(const char *from, const char *to) {
    wchar_t old[FL_WIDE_MAX], new[FL_WIDE_MAX];
    if (!fl_wide_path(from, old) || !fl_wide_path(to, new))
        return -1;
    return done(MoveFileExW(old, new, MOVEFILE_REPLACE_EXISTING));
}

int posix_link(const char *from, const char *to) {
    wchar_t old[FL_WIDE_MAX], new[FL_WIDE_MAX];
    if (!fl_wide_path(from, old) || !fl_wide_path(to, new))
        return -1;
    return done(CreateHardLinkW(new, old, NULL));
}

int posix_unlink(const char *path) {
    wchar_t name[FL_WIDE_MAX];
    return fl_wide_path(path, name) ? done(DeleteFileW(name)) : -1;
}

int posix_rmdir(const char *path) {
    wchar_t name[FL_WIDE_MAX];
    return fl_wide_path(path, name) ? done(RemoveDirectoryW(name)) : -1;
}

int posix_remove(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0)
        return -1;
    return S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path);
}

int posix_mkdir(const char *path, unsigned mode) {
    wchar_t name[FL_WIDE_MAX];
    (void)mode;
    return fl_wide_path(path, name) ? done(CreateDirectoryW(name, NULL)) : -1;
}

int posix_access(const char *path, int mode) {
    wchar_t name[FL_WIDE_MAX];
    if (!fl_wide_path(path, name))
        return -1;
    const DWORD attributes = GetFileAttributesW(name);
    if (attributes == INVALID_FILE_ATTRIBUTES)
        return fl_windows_failed();
    errno = EACCES;
    return mode & W_OK && attributes & FILE_ATTRIBUTE_READONLY ? -1 : 0;
}

char *posix_realpath(const char *path, char *out) {
    wchar_t name[FL_WIDE_MAX], whole[FL_WIDE_MAX];
    if (!fl_wide_path(path, name))
        return NULL;
    HANDLE file = CreateFileW(name, FILE_READ_ATTRIBUTES, SHARED, NULL, OPEN_EXISTING,
                              FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE) {
        (void)fl_windows_failed();
        return NULL;
    }
    const DWORD size = GetFinalPathNameByHandleW(file, whole, FL_WIDE_MAX, VOLUME_NAME_DOS);
    if (size == 0)
        (void)fl_windows_failed();
    CloseHandle(file);
    return size > 0 && size < FL_WIDE_MAX && fl_wide_to_text(whole, out, PATH_MAX) ? out : NULL;
}

/* The six X at the end of a template. */
static bool fill_in(char *path) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    unsigned char     random[6];
    const size_t      size = strlen(path);
    if (size < 6 || !fl_os_random(random, sizeof random)) {
        errno = EINVAL;
        return false;
    }
    for (size_t i = 0; i < 6; i++)
        path[size - 6 + i] = letters[random[i] % 32];
    return true;
}

int posix_mkostemp(char *path, int flags) {
    return fill_in(path) ? open(path, flags | O_RDWR | O_CREAT | O_EXCL, 0600) : -1;
}

char *posix_mkdtemp(char *path) {
    return fill_in(path) && mkdir(path, 0700) == 0 ? path : NULL;
}

/* ---- What is there --------------------------------------------------------------------------- */

static int status_of(HANDLE file, struct stat *out) {
    BY_HANDLE_FILE_INFORMATION about;
    memset(out, 0, sizeof *out);
    const DWORD kind = GetFileType(file);
    if (kind != FILE_TYPE_DISK) {
        out->st_mode  = kind == FILE_TYPE_PIPE ? S_IFIFO | 0600 : S_IFCHR | 0600;
        out->st_nlink = 1;
        return 0;
    }
    if (!GetFileInformationByHandle(file, &about))
        return fl_windows_failed();
    const bool    folder  = (about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
    const bool    locked  = (about.dwFileAttributes & FILE_ATTRIBUTE_READONLY) != 0;
    const int64_t written = (int64_t)((uint64_t)about.ftLastWriteTime.dwHighDateTime << 32 |
                                      about.ftLastWriteTime.dwLowDateTime);
    const int64_t epoch   = INT64_C(116444736000000000); /* 1970, in units of 100 ns since 1601 */
    out->st_mode          = folder ? S_IFDIR | 0755 : locked ? S_IFREG | 0444 : S_IFREG | 0644;
    out->st_dev           = about.dwVolumeSerialNumber;
    out->st_ino           = (uint64_t)about.nFileIndexHigh << 32 | about.nFileIndexLow;
    out->st_nlink         = about.nNumberOfLinks;
    out->st_size          = (int64_t)((uint64_t)about.nFileSizeHigh << 32 | about.nFileSizeLow);
    out->st_mtime         = (written - epoch) / 10000000;
    out->st_mtim.tv_sec   = (time_t)out->st_mtime;
    out->st_mtim.tv_nsec  = (long)((written - epoch) % 10000000 * 100);
    return 0;
}

int posix_stat(const char *path, struct stat *out) {
    wchar_t name[FL_WIDE_MAX];
    if (!fl_wide_path(path, name))
        return -1;
    HANDLE file = CreateFileW(name, FILE_READ_ATTRIBUTES, SHARED, NULL, OPEN_EXISTING,
                              FILE_FLAG_BACKUP_SEMANTICS, NULL);
    if (file == INVALID_HANDLE_VALUE)
        return fl_windows_failed();
    const int result = status_of(file, out);
    CloseHandle(file);
    return result;
}

int posix_fstat(int fd, struct stat *out) {
    HANDLE file = handle_of(fd);
    return file != INVALID_HANDLE_VALUE ? status_of(file, out) : -1;
}

int statvfs(const char *path, struct statvfs *out) {
    wchar_t        name[FL_WIDE_MAX];
    ULARGE_INTEGER left;
    if (!fl_wide_path(path, name) || !GetDiskFreeSpaceExW(name, &left, NULL, NULL))
        return fl_windows_failed();
    *out = (struct statvfs){.f_bavail = left.QuadPart, .f_frsize = 1, .f_bsize = 1};
    return 0;
}
