# SPDX-License-Identifier: Apache-2.0
framework_libstrata_la_SOURCES += framework/data/tokenizer.h framework/data/tokenizer_priv.h framework/data/tokenizer.c \
  framework/data/tokenizer_json.c framework/data/tokenizer_nfc.c framework/data/tokenizer_bytes.c \
  framework/data/image.h framework/data/image_priv.h framework/data/image.c framework/data/image_exif.c \
  framework/data/image_png.c framework/data/image_jpeg.c framework/data/chat.h framework/data/chat.c \
  framework/data/sequence.h framework/data/sequence.c framework/data/prepare.h framework/data/prepare.c \
  framework/data/feed.h framework/data/feed.c framework/data/loader.h framework/data/loader_priv.h framework/data/loader.c \
  framework/data/look.c framework/data/fill.c
