/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config.h"
