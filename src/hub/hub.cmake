# SPDX-License-Identifier: Apache-2.0
# The hub's sources. They are linked with the model's, which is above them, as one.
set(FL_HUB_SOURCES download.c gguf_stores.c hub.c hub_cache.c hub_env.c hub_manage.c hub_name.c hub_pull.c hub_snapshot.c
                   model_files.c)
list(TRANSFORM FL_HUB_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
