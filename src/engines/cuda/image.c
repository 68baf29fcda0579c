/* SPDX-License-Identifier: Apache-2.0 */
/* image.c - the compiled kernels as bytes of the module.
 *
 * Role    The host code hands fl_cuda_image to the driver, which takes from it the machine code of its
 *         device, or compiles the PTX that is in it.
 * Method  The assembler includes the file that cmake/cuda.cmake made (FL_CUDA_IMAGE_FILE); an array in
 *         C would take the compiler minutes for megabytes.
 * Memory  Read-only pages of the module, shared by all processes that use it. */
#ifndef FL_CUDA_IMAGE_FILE
#error "FL_CUDA_IMAGE_FILE names the file of compiled kernels"
#endif

__asm__(".pushsection .rodata\n"
        ".balign 64\n"
        ".globl fl_cuda_image\n"
        ".hidden fl_cuda_image\n"
        "fl_cuda_image:\n"
        ".incbin \"" FL_CUDA_IMAGE_FILE "\"\n"
        "1:\n"
        ".balign 4\n"
        ".globl fl_cuda_image_size\n"
        ".hidden fl_cuda_image_size\n"
        "fl_cuda_image_size:\n"
        ".long 1b - fl_cuda_image\n"
        ".popsection\n");
