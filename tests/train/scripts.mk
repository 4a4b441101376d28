# SPDX-License-Identifier: Apache-2.0
train_scripts = tests/train/repeat.sh tests/train/refuse.sh
TESTS += $(train_scripts)
EXTRA_DIST += $(train_scripts) tests/train/train.sh tests/train/micro.ini
