/* SPDX-License-Identifier: Apache-2.0 */
/* api.h - ONNX Runtime's C interface as fletch sees it: opaque types, constants, and our slot table.
 *
 * Role    ONNX Runtime is opened at run time, so nothing of it is needed to build fletch. Its
 *         interface is one static table of function pointers whose order never changes once a
 *         version is released; the X-macros below name the slots that fletch calls, each with its
 *         index and type, and library.c copies them into structs of the same names.
 * Rules   A function returns OrtStatus* (NULL is success, ReleaseStatus frees it) unless another
 *         type stands before its name. Every slot here is at most FL_ORT_API_OLDEST's last one
 *         (317): reading beyond the end of an older table would give garbage, not NULL.
 * Naming  Types and members keep ONNX Runtime's own names, so that its documentation is found by
 *         searching for them. Indices and types are facts of its ABI, checked by
 *         tests/unit/test_onnxruntime.c against the real library. */
#ifndef FL_ENGINES_ONNXRUNTIME_API_H
#define FL_ENGINES_ONNXRUNTIME_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The minor versions of 1.x: the oldest whose table has the Model Editor and everything below, and
 * the newest that the tests have run. A newer one serves the old table too. */
enum { FL_ORT_API_OLDEST = 22, FL_ORT_API_NEWEST = 31 };

typedef struct OrtStatus                    OrtStatus;
typedef struct OrtEnv                       OrtEnv;
typedef struct OrtSession                   OrtSession;
typedef struct OrtSessionOptions            OrtSessionOptions;
typedef struct OrtRunOptions                OrtRunOptions;
typedef struct OrtValue                     OrtValue;
typedef struct OrtMemoryInfo                OrtMemoryInfo;
typedef struct OrtAllocator                 OrtAllocator;
typedef struct OrtIoBinding                 OrtIoBinding;
typedef struct OrtTypeInfo                  OrtTypeInfo;
typedef struct OrtTensorTypeAndShapeInfo    OrtTensorTypeAndShapeInfo;
typedef struct OrtCUDAProviderOptionsV2     OrtCUDAProviderOptionsV2;
typedef struct OrtTensorRTProviderOptionsV2 OrtTensorRTProviderOptionsV2;
typedef struct OrtEpDevice                  OrtEpDevice;
typedef struct OrtOpAttr                    OrtOpAttr;
typedef struct OrtValueInfo                 OrtValueInfo;
typedef struct OrtNode                      OrtNode;
typedef struct OrtGraph                     OrtGraph;
typedef struct OrtModel                     OrtModel;

typedef enum OrtLoggingLevel {
    ORT_LOG_VERBOSE,
    ORT_LOG_INFO,
    ORT_LOG_WARNING,
    ORT_LOG_ERROR,
    ORT_LOG_FATAL
} OrtLoggingLevel;
typedef enum OrtErrorCode {
    ORT_OK,
    ORT_FAIL,
    ORT_INVALID_ARGUMENT,
    ORT_NO_SUCHFILE,
    ORT_NO_MODEL,
    ORT_ENGINE_ERROR,
    ORT_RUNTIME_EXCEPTION,
    ORT_INVALID_PROTOBUF,
    ORT_MODEL_LOADED,
    ORT_NOT_IMPLEMENTED,
    ORT_INVALID_GRAPH,
    ORT_EP_FAIL
} OrtErrorCode;
typedef enum GraphOptimizationLevel {
    ORT_DISABLE_ALL     = 0,
    ORT_ENABLE_BASIC    = 1,
    ORT_ENABLE_EXTENDED = 2,
    ORT_ENABLE_ALL      = 99
} GraphOptimizationLevel;
typedef enum ExecutionMode { ORT_SEQUENTIAL = 0, ORT_PARALLEL = 1 } ExecutionMode;
typedef enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum OrtMemType { OrtMemTypeCPUOutput = -1, OrtMemTypeDefault = 0 } OrtMemType;
typedef enum ONNXType { ONNX_TYPE_UNKNOWN = 0, ONNX_TYPE_TENSOR = 1 } ONNXType;
typedef enum ONNXTensorElementDataType {
    ONNX_F32  = 1,
    ONNX_U8   = 2,
    ONNX_I8   = 3,
    ONNX_I32  = 6,
    ONNX_I64  = 7,
    ONNX_BOOL = 9,
    ONNX_F16  = 10,
    ONNX_F64  = 11,
    ONNX_BF16 = 16
} ONNXTensorElementDataType;
typedef enum OrtOpAttrType {
    ORT_OP_ATTR_INT     = 1,
    ORT_OP_ATTR_INTS    = 2,
    ORT_OP_ATTR_FLOAT   = 3,
    ORT_OP_ATTR_FLOATS  = 4,
    ORT_OP_ATTR_STRING  = 5,
    ORT_OP_ATTR_STRINGS = 6
} OrtOpAttrType;

typedef void (*OrtLoggingFunction)(void *param, OrtLoggingLevel severity, const char *category,
                                   const char *logid, const char *where, const char *message);

/* OrtGetApiBase() gives this; it can never change. */
typedef struct OrtApiBase {
    const void *(*GetApi)(uint32_t version);
    const char *(*GetVersionString)(void);
} OrtApiBase;

/* clang-format off */
/* X(index, type, name, parameters) */
#define FL_ORT_SLOTS(X)                                                                            \
    X(0, OrtStatus *, CreateStatus, (OrtErrorCode code, const char *message))                      \
    X(1, OrtErrorCode, GetErrorCode, (const OrtStatus *status))                                    \
    X(2, const char *, GetErrorMessage, (const OrtStatus *status))                                 \
    X(93, void, ReleaseStatus, (OrtStatus *status))                                                \
    X(4, OrtStatus *, CreateEnvWithCustomLogger, (OrtLoggingFunction log, void *param,             \
        OrtLoggingLevel level, const char *logid, OrtEnv **out))                                   \
    X(6, OrtStatus *, DisableTelemetryEvents, (const OrtEnv *env))                                 \
    X(92, void, ReleaseEnv, (OrtEnv *env))                                                         \
    X(254, const char *, GetBuildInfoString, (void))                                               \
    /* session options */                                                                          \
    X(10, OrtStatus *, CreateSessionOptions, (OrtSessionOptions **out))                            \
    X(100, void, ReleaseSessionOptions, (OrtSessionOptions *options))                              \
    X(13, OrtStatus *, SetSessionExecutionMode, (OrtSessionOptions *options, ExecutionMode mode))  \
    X(14, OrtStatus *, EnableProfiling, (OrtSessionOptions *options, const void *file_prefix))     \
    X(16, OrtStatus *, EnableMemPattern, (OrtSessionOptions *options))                             \
    X(17, OrtStatus *, DisableMemPattern, (OrtSessionOptions *options))                            \
    X(18, OrtStatus *, EnableCpuMemArena, (OrtSessionOptions *options))                            \
    X(19, OrtStatus *, DisableCpuMemArena, (OrtSessionOptions *options))                           \
    X(22, OrtStatus *, SetSessionLogSeverityLevel, (OrtSessionOptions *options, int level))        \
    X(23, OrtStatus *, SetSessionGraphOptimizationLevel, (OrtSessionOptions *options,              \
        GraphOptimizationLevel level))                                                             \
    X(24, OrtStatus *, SetIntraOpNumThreads, (OrtSessionOptions *options, int threads))            \
    X(25, OrtStatus *, SetInterOpNumThreads, (OrtSessionOptions *options, int threads))            \
    X(124, OrtStatus *, AddFreeDimensionOverrideByName, (OrtSessionOptions *options,               \
        const char *name, int64_t value))                                                          \
    X(130, OrtStatus *, AddSessionConfigEntry, (OrtSessionOptions *options, const char *key,       \
        const char *value))                                                                        \
    X(237, OrtStatus *, HasSessionConfigEntry, (const OrtSessionOptions *options, const char *key, \
        int *out))                                                                                 \
    X(238, OrtStatus *, GetSessionConfigEntry, (const OrtSessionOptions *options, const char *key, \
        char *value, size_t *size))                                                                \
    X(266, OrtStatus *, SetUserLoggingFunction, (OrtSessionOptions *options,                       \
        OrtLoggingFunction log, void *param))                                                      \
    X(273, OrtStatus *, SetDeterministicCompute, (OrtSessionOptions *options, bool value))         \
    /* execution providers */                                                                      \
    X(125, OrtStatus *, GetAvailableProviders, (char ***out, int *count))                          \
    X(126, OrtStatus *, ReleaseAvailableProviders, (char **names, int count))                      \
    X(216, OrtStatus *, SessionOptionsAppendExecutionProvider, (OrtSessionOptions *options,        \
        const char *name, const char *const *keys, const char *const *values, size_t count))       \
    X(204, OrtStatus *, SessionOptionsAppendExecutionProvider_CUDA_V2,                             \
        (OrtSessionOptions *options, const OrtCUDAProviderOptionsV2 *cuda))                        \
    X(205, OrtStatus *, CreateCUDAProviderOptions, (OrtCUDAProviderOptionsV2 **out))               \
    X(206, OrtStatus *, UpdateCUDAProviderOptions, (OrtCUDAProviderOptionsV2 *cuda,                \
        const char *const *keys, const char *const *values, size_t count))                         \
    X(208, void, ReleaseCUDAProviderOptions, (OrtCUDAProviderOptionsV2 *cuda))                     \
    X(170, OrtStatus *, SessionOptionsAppendExecutionProvider_TensorRT_V2,                         \
        (OrtSessionOptions *options, const OrtTensorRTProviderOptionsV2 *tensorrt))                \
    X(171, OrtStatus *, CreateTensorRTProviderOptions, (OrtTensorRTProviderOptionsV2 **out))       \
    X(172, OrtStatus *, UpdateTensorRTProviderOptions, (OrtTensorRTProviderOptionsV2 *tensorrt,    \
        const char *const *keys, const char *const *values, size_t count))                         \
    X(174, void, ReleaseTensorRTProviderOptions, (OrtTensorRTProviderOptionsV2 *tensorrt))         \
    X(301, OrtStatus *, RegisterExecutionProviderLibrary, (OrtEnv *env, const char *name,          \
        const void *path))                                                                         \
    X(304, OrtStatus *, SessionOptionsAppendExecutionProvider_V2, (OrtSessionOptions *options,     \
        OrtEnv *env, const OrtEpDevice *const *devices, size_t device_count,                       \
        const char *const *keys, const char *const *values, size_t count))                         \
    X(303, OrtStatus *, GetEpDevices, (const OrtEnv *env, const OrtEpDevice *const **out,          \
        size_t *count))                                                                            \
    X(312, const char *, EpDevice_EpName, (const OrtEpDevice *device))                             \
    /* sessions and what they say of their inputs and outputs */                                   \
    X(7, OrtStatus *, CreateSession, (const OrtEnv *env, const void *path,                         \
        const OrtSessionOptions *options, OrtSession **out))                                       \
    X(8, OrtStatus *, CreateSessionFromArray, (const OrtEnv *env, const void *data, size_t size,   \
        const OrtSessionOptions *options, OrtSession **out))                                       \
    X(95, void, ReleaseSession, (OrtSession *session))                                             \
    X(30, OrtStatus *, SessionGetInputCount, (const OrtSession *session, size_t *out))             \
    X(31, OrtStatus *, SessionGetOutputCount, (const OrtSession *session, size_t *out))            \
    X(33, OrtStatus *, SessionGetInputTypeInfo, (const OrtSession *session, size_t index,          \
        OrtTypeInfo **out))                                                                        \
    X(34, OrtStatus *, SessionGetOutputTypeInfo, (const OrtSession *session, size_t index,         \
        OrtTypeInfo **out))                                                                        \
    X(36, OrtStatus *, SessionGetInputName, (const OrtSession *session, size_t index,              \
        OrtAllocator *allocator, char **out))                                                      \
    X(37, OrtStatus *, SessionGetOutputName, (const OrtSession *session, size_t index,             \
        OrtAllocator *allocator, char **out))                                                      \
    X(55, OrtStatus *, CastTypeInfoToTensorInfo, (const OrtTypeInfo *info,                         \
        const OrtTensorTypeAndShapeInfo **out))                                                    \
    X(56, OrtStatus *, GetOnnxTypeFromTypeInfo, (const OrtTypeInfo *info, ONNXType *out))          \
    X(60, OrtStatus *, GetTensorElementType, (const OrtTensorTypeAndShapeInfo *info,               \
        ONNXTensorElementDataType *out))                                                           \
    X(61, OrtStatus *, GetDimensionsCount, (const OrtTensorTypeAndShapeInfo *info, size_t *out))   \
    X(62, OrtStatus *, GetDimensions, (const OrtTensorTypeAndShapeInfo *info, int64_t *out,        \
        size_t count))                                                                             \
    X(98, void, ReleaseTypeInfo, (OrtTypeInfo *info))                                              \
    X(110, OrtStatus *, SessionEndProfiling, (OrtSession *session, OrtAllocator *allocator,        \
        char **out))                                                                               \
    X(146, OrtStatus *, SessionGetProfilingStartTimeNs, (const OrtSession *session,                \
        uint64_t *out))                                                                            \
    /* running */                                                                                  \
    X(9, OrtStatus *, Run, (OrtSession *session, const OrtRunOptions *options,                     \
        const char *const *input_names, const OrtValue *const *inputs, size_t input_count,         \
        const char *const *output_names, size_t output_count, OrtValue **outputs))                 \
    X(133, OrtStatus *, RunWithBinding, (OrtSession *session, const OrtRunOptions *options,        \
        const OrtIoBinding *binding))                                                              \
    /* tensors and memory */                                                                       \
    X(49, OrtStatus *, CreateTensorWithDataAsOrtValue, (const OrtMemoryInfo *info, void *data,     \
        size_t bytes, const int64_t *shape, size_t rank, ONNXTensorElementDataType type,           \
        OrtValue **out))                                                                           \
    X(51, OrtStatus *, GetTensorMutableData, (OrtValue *value, void **out))                        \
    X(65, OrtStatus *, GetTensorTypeAndShape, (const OrtValue *value,                              \
        OrtTensorTypeAndShapeInfo **out))                                                          \
    X(96, void, ReleaseValue, (OrtValue *value))                                                   \
    X(68, OrtStatus *, CreateMemoryInfo, (const char *name, OrtAllocatorType allocator, int device,\
        OrtMemType type, OrtMemoryInfo **out))                                                     \
    X(131, OrtStatus *, CreateAllocator, (const OrtSession *session, const OrtMemoryInfo *info,    \
        OrtAllocator **out))                                                                       \
    X(132, void, ReleaseAllocator, (OrtAllocator *allocator))                                      \
    X(75, OrtStatus *, AllocatorAlloc, (OrtAllocator *allocator, size_t size, void **out))         \
    X(69, OrtStatus *, CreateCpuMemoryInfo, (OrtAllocatorType allocator, OrtMemType type,          \
        OrtMemoryInfo **out))                                                                      \
    X(94, void, ReleaseMemoryInfo, (OrtMemoryInfo *info))                                          \
    X(76, OrtStatus *, AllocatorFree, (OrtAllocator *allocator, void *block))                      \
    X(78, OrtStatus *, GetAllocatorWithDefaultOptions, (OrtAllocator **out))                       \
    /* input and output binding */                                                                 \
    X(134, OrtStatus *, CreateIoBinding, (OrtSession *session, OrtIoBinding **out))                \
    X(135, void, ReleaseIoBinding, (OrtIoBinding *binding))                                        \
    X(136, OrtStatus *, BindInput, (OrtIoBinding *binding, const char *name,                       \
        const OrtValue *value))                                                                    \
    X(137, OrtStatus *, BindOutput, (OrtIoBinding *binding, const char *name,                      \
        const OrtValue *value))                                                                    \
    X(138, OrtStatus *, BindOutputToDevice, (OrtIoBinding *binding, const char *name,              \
        const OrtMemoryInfo *info))                                                                \
    X(140, OrtStatus *, GetBoundOutputValues, (const OrtIoBinding *binding,                        \
        OrtAllocator *allocator, OrtValue ***out, size_t *count))                                  \
    X(141, void, ClearBoundInputs, (OrtIoBinding *binding))                                        \
    X(142, void, ClearBoundOutputs, (OrtIoBinding *binding))                                       \
    X(202, OrtStatus *, SynchronizeBoundInputs, (OrtIoBinding *binding))                           \
    X(203, OrtStatus *, SynchronizeBoundOutputs, (OrtIoBinding *binding))                          \
    /* for building a graph */                                                                     \
    X(291, const void *, GetModelEditorApi, (void))                                                \
    X(57, OrtStatus *, CreateTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo **out))            \
    X(58, OrtStatus *, SetTensorElementType, (OrtTensorTypeAndShapeInfo *info,                     \
        ONNXTensorElementDataType type))                                                           \
    X(59, OrtStatus *, SetDimensions, (OrtTensorTypeAndShapeInfo *info, const int64_t *dimensions, \
        size_t count))                                                                             \
    X(271, OrtStatus *, SetSymbolicDimensions, (OrtTensorTypeAndShapeInfo *info,                   \
        const char **names, size_t count))                                                         \
    X(99, void, ReleaseTensorTypeAndShapeInfo, (OrtTensorTypeAndShapeInfo *info))                  \
    X(48, OrtStatus *, CreateTensorAsOrtValue, (OrtAllocator *allocator, const int64_t *shape,     \
        size_t rank, ONNXTensorElementDataType type, OrtValue **out))                              \
    X(211, OrtStatus *, CreateOpAttr, (const char *name, const void *data, int count,              \
        OrtOpAttrType type, OrtOpAttr **out))                                                      \
    X(212, void, ReleaseOpAttr, (OrtOpAttr *attribute))                                            \
    X(285, void, ReleaseValueInfo, (OrtValueInfo *info))                                           \
    X(286, void, ReleaseNode, (OrtNode *node))                                                     \
    X(287, void, ReleaseGraph, (OrtGraph *graph))                                                  \
    X(288, void, ReleaseModel, (OrtModel *model))

/* The table behind GetModelEditorApi. Ownership of what is set or added moves on success. */
#define FL_ORT_EDITOR_SLOTS(X)                                                                     \
    X(0, OrtStatus *, CreateTensorTypeInfo, (const OrtTensorTypeAndShapeInfo *info,                \
        OrtTypeInfo **out))                                                                        \
    X(5, OrtStatus *, CreateValueInfo, (const char *name, const OrtTypeInfo *type,                 \
        OrtValueInfo **out))                                                                       \
    X(6, OrtStatus *, CreateNode, (const char *operator_name, const char *domain,                  \
        const char *node_name, const char *const *inputs, size_t input_count,                      \
        const char *const *outputs, size_t output_count, OrtOpAttr **attributes,                   \
        size_t attribute_count, OrtNode **out))                                                    \
    X(7, OrtStatus *, CreateGraph, (OrtGraph **out))                                               \
    X(8, OrtStatus *, SetGraphInputs, (OrtGraph *graph, OrtValueInfo **inputs, size_t count))      \
    X(9, OrtStatus *, SetGraphOutputs, (OrtGraph *graph, OrtValueInfo **outputs, size_t count))    \
    X(10, OrtStatus *, AddInitializerToGraph, (OrtGraph *graph, const char *name,                  \
        OrtValue *tensor, bool data_is_external))                                                  \
    X(11, OrtStatus *, AddNodeToGraph, (OrtGraph *graph, OrtNode *node))                           \
    X(12, OrtStatus *, CreateModel, (const char *const *domains, const int *opsets, size_t count,  \
        OrtModel **out))                                                                           \
    X(13, OrtStatus *, AddGraphToModel, (OrtModel *model, OrtGraph *graph))                        \
    X(14, OrtStatus *, CreateSessionFromModel, (const OrtEnv *env, const OrtModel *model,          \
        const OrtSessionOptions *options, OrtSession **out))
/* clang-format on */

#define FL_ORT_MEMBER(index, type, name, parameters) type(*name) parameters;
typedef struct fl_ort_api {
    FL_ORT_SLOTS(FL_ORT_MEMBER)
} fl_ort_api;
typedef struct fl_ort_editor_api {
    FL_ORT_EDITOR_SLOTS(FL_ORT_MEMBER)
} fl_ort_editor_api;
#undef FL_ORT_MEMBER

#endif
