/* SPDX-License-Identifier: Apache-2.0 */
/* ort_words.c - what ONNX Runtime says went wrong, as a person can use it.
 *
 * Role    Every status of the library that becomes an error of ours passes here.
 * Method  A message begins with the place in the library's source where it was made, the signature of
 *         a C++ function included, and holds its own code behind it, once for each layer that wrapped
 *         another: what counts is behind the last one. Dawn, which WebGPU runs on, adds functions and files
 *         behind. A refusal is searched for the piece that a
 *         machine without a working device lacks, which says better than the name of a package what
 *         is to be installed.
 * Memory  none. Threads: any.
 * Proof   tests/unit/test_onnxruntime.c, with messages of the real onnxruntime-gpu;
 *         tests/golden/test_onnxruntime.py with the library itself. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "engines/onnxruntime/ort.h"

/* Past "[ONNXRuntimeError] : 11 : EP_FAIL : ", the last of them. */
static const char *past_codes(const char *at) {
    static const char mark[] = "[ONNXRuntimeError] : ";
    for (const char *next; (next = strstr(at, mark)) != NULL;) {
        const char *code = next + sizeof mark - 1, *name = strstr(code, " : ");
        const char *end = name == NULL ? NULL : strstr(name + 3, " : ");
        if (end == NULL)
            break;
        at = end + 3;
    }
    return at;
}

/* Past the signature of a function: up to the first space behind its brackets, and what is said of the
 * object. "ns::f(const T&)::<lambda(int)> const" */
static const char *past_signature(const char *at) {
    const char *end   = at;
    int         depth = 0;
    bool        seen  = false;
    for (; *end != '\0' && !(seen && depth == 0 && *end == ' '); end++) {
        depth += (*end == '(' || *end == '<') - (*end == ')' || *end == '>');
        seen = seen || *end == ')';
    }
    if (*end == '\0')
        return at;
    return strncmp(end, " const ", 7) == 0 ? end + 6 : end;
}

/* Past "/src/core/file.cc:63 type name::function(arguments) const" or "file.h:187 function". */
static const char *past_place(const char *at) {
    static const char *const kinds[] = {".cc:", ".h:", ".cpp:", ".cu:"};
    size_t                   word    = strcspn(at, " ");
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        const char *kind = strstr(at, kinds[i]);
        if (kind == NULL || (size_t)(kind - at) >= word)
            continue;
        const char *name = at + word + (at[word] == ' ');
        const char *end =
            memchr(at, '/', word) != NULL ? past_signature(name) : name + strcspn(name, " ");
        return end + strspn(end, " ");
    }
    return at;
}

/* Past "Exception from file:266: ", once for each layer of OpenVINO. */
static const char *past_exceptions(const char *at) {
    static const char mark[] = "Exception from ";
    for (const char *next; (next = strstr(at, mark)) != NULL;) {
        for (at = next + sizeof mark - 1; *at != '\0' && *at != ' ' && *at != '\n';)
            at++;
        at += strspn(at, " \n");
    }
    return at;
}

/* Past the number of a fault of WebGPU, "3): ": memory, by whatever name the system has for it. */
static const char *past_kind(const char *at, char out[FL_ORT_WORDS], size_t *used) {
    static const char memory[] = "out of memory: ";
    if (strncmp(at, "3)", 2) == 0) {
        memcpy(out, memory, sizeof memory);
        *used = sizeof memory - 1;
    }
    const char *end = strstr(at, "): ");
    return end == NULL ? at : end + strlen("): ");
}

void fl_ort_words(const char *message, char out[FL_ORT_WORDS]) {
    static const char loader[] = " with error: ", claim[] = " was false. ";
    static const char node[] = "Status Message: ", device[] = "device error(";
    const char       *at = past_place(past_codes(message)), *why = strstr(at, node);
    size_t            used = 0;
    if (why != NULL) /* which node met it is for the log */
        at = past_place(why + sizeof node - 1);
    why = strstr(at, device);
    at  = why == NULL ? at : past_kind(why + sizeof device - 1, out, &used);
    why = strstr(at, loader);
    if (why != NULL) /* which of its own files does not load, says less than what that one lacks */
        at = why + sizeof loader - 1;
    why = strstr(at, claim);
    if (why != NULL && why[sizeof claim - 1] != '\0')
        at = why + sizeof claim - 1;
    at                = past_exceptions(at);
    const char *end   = strstr(at, " ; GPU=");   /* and host, file, line */
    const char *stack = strstr(at, "\n    at "); /* functions of Dawn, with their files */
    if (stack != NULL && (end == NULL || stack < end))
        end = stack;
    for (; *at != '\0' && at != end && used < FL_ORT_WORDS - 1; at++)
        if (!isspace((unsigned char)*at))
            out[used++] = *at;
        else if (used > 0 && out[used - 1] != ' ')
            out[used++] = ' ';
    while (used > 0 && (out[used - 1] == ' ' || out[used - 1] == '.'))
        used--;
    out[used] = '\0';
}

bool fl_ort_is_memory(const char *words) {
    static const char *const known[] = {
        "Failed to allocate memory", "out of memory", "bad_alloc",    "OUT_OF_DEVICE_MEMORY",
        "OUT_OF_HOST_MEMORY",        "E_OUTOFMEMORY", "Out of memory"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        found = found || strstr(words, known[i]) != NULL;
    return found;
}

int fl_ort_check(const fl_ort *ort, OrtStatus *status, int code, fletch_error *error,
                 const char *context) {
    char words[FL_ORT_WORDS];
    if (status == NULL)
        return FLETCH_OK;
    fl_ort_words(ort->api.GetErrorMessage(status), words);
    fl_fail(error, code, FLETCH_NOWHERE, "%.230s: %s", context, words);
    ort->api.ReleaseStatus(status);
    return code;
}

/* The first whose words are in a message says what mends it. */
static const struct {
    const char *words, *remedy;
} remedies[] = {
    {"undefined symbol: cuTensorMap",
     "Install a newer NVIDIA driver: this one is older than CUDA 12"},
    {"libcuda.so", "The NVIDIA driver is missing: install it"},
    {"nvcuda.dll", "The NVIDIA driver is missing: install it"},
    {"stub library", "The driver found is the CUDA toolkit's stub: remove its folder from the "
                     "library path, and install the NVIDIA driver"},
    {"driver version is insufficient", "Install a newer NVIDIA driver, or an ONNX Runtime for an "
                                       "older CUDA"},
    {"not supported in the installed CUDA driver", "Install a newer NVIDIA driver"},
    {"unsupported display driver", "The NVIDIA driver's library and kernel module are of different "
                                   "versions: restart the machine, or install one version of both"},
    {"CUDA failure 999", "The NVIDIA driver does not start: see nvidia-smi and dmesg"},
    {"no CUDA-capable device", "The NVIDIA driver shows no GPU: see nvidia-smi and "
                               "CUDA_VISIBLE_DEVICES"},
    {"WebGPU adapter", "Install a driver of the GPU for Vulkan, Direct3D 12 or Metal"},
    {"load provider OpenVINO", "Set openvino.device to a device of this machine, and keep "
                               "OpenVINO's libraries beside the library"},
    {"libcudnn", "Install cuDNN of that version and put its folder on the library path"},
    {"libnvinfer", "Install TensorRT of that version and put its folder on the library path"},
    {"libnvonnxparser", "Install TensorRT of that version and put its folder on the library path"},
    {"libcu",
     "Install the CUDA libraries of that version and put their folder on the library path"},
    {"libnvrtc", "Install the CUDA libraries of that version and put their folder on the library "
                 "path"},
};

int fl_ort_refuse(const fl_ort *ort, const char *what, const char *message, const char *otherwise,
                  fletch_error *error) {
    char words[FL_ORT_WORDS];
    fl_ort_words(message, words);
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++)
        if (strstr(words, remedies[i].words) != NULL) {
            otherwise = remedies[i].remedy;
            break;
        }
    return fl_fail(error, FLETCH_EPROVIDER, FLETCH_NOWHERE,
                   "%.100s: %s%s%s (ONNX Runtime %s, %.120s)", what, words,
                   otherwise[0] != '\0' ? ". " : "", otherwise, ort->version, ort->path);
}
