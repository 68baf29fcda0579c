/* SPDX-License-Identifier: Apache-2.0 */
#include "engines/engine.h"
