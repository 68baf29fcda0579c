/* SPDX-License-Identifier: Apache-2.0 */
#include "tokenizer/tokenizer.h"
