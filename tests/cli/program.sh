#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program as a user meets it: usage, exit status, plugins, inspect.
. "$ST_SRCDIR/tests/cli/cli.sh"

# silent COMMAND...: nothing goes to the error output
silent() { "$@" 2>&1 > /dev/null | tee "$scratch/errors"; [ ! -s "$scratch/errors" ]; }

must 'the version names the plugin ABI' exits 0 'plugin ABI 1.0' "$strata" --version
must 'help is success' exits 0 'commands:' "$strata" --help
must 'no command is wrong usage' exits 2 'usage: strata' "$strata"
must 'an unknown command gives the nearest' exits 2 "did you mean 'inspect'?" "$strata" inspekt
must 'each command has help' exits 0 'usage: strata plugins' "$strata" plugins --help
must 'also as a word' exits 0 'usage: strata plugins' "$strata" help plugins
must 'which alone lists the commands' exits 0 'commands:' "$strata" help
must 'no help of what there is not' exits 2 "there is no command 'plugin'; did you mean 'plugins'?" "$strata" help plugin
must 'an unknown option is wrong usage' exits 2 "Try 'strata plugins --help'" "$strata" plugins --wrong
must 'an argument too many is wrong usage' exits 2 "got 'x'" "$strata" plugins x

# ---- plugins ----
must 'plugins are listed' exits 0 'mrope' "$strata" plugins
must 'the search is shown' exits 0 'STRATA_PLUGIN_PATH_ONLY' "$strata" plugins
mkdir "$scratch/a" "$scratch/b"
manifest() {
    printf '[manifest]\nformat = 1\n[plugin]\nname = %s\nkind = layer\nmodule = m\nabi = 1\nversion = 1\n%s\n' \
        "$2" "$3" > "$1"
}
manifest "$scratch/a/one.ini" one 'symbol = Q'
manifest "$scratch/b/one.ini" one 'symbol = Q'
manifest "$scratch/b/two.ini" two 'symbol = Q'
must 'a shadowed plugin is shown with the reason' exits 0 "shadowed: $scratch/a/one.ini comes first" \
    "$strata" plugins --plugin-path "$scratch/a:$scratch/b"
must 'two claims on a symbol are shown' exits 0 'symbol Q is claimed by one and two' \
    "$strata" plugins --plugin-path "$scratch/a" --plugin-path "$scratch/b"
echo 'wrong = 1' >> "$scratch/b/two.ini"
must 'a manifest with a mistake is told by line and set aside' exits 0 "$scratch/b/two.ini:10:1: warning" \
    "$strata" plugins --plugin-path "$scratch/b"
chmod 777 "$scratch/a"
must 'a world-writable directory is told' exits 0 'world-writable' "$strata" plugins --plugin-path "$scratch/a"

# ---- inspect ----
must 'a plugin is shown by name' exits 0 'frequencies' "$strata" inspect mrope
must 'without a word on the error output' silent "$strata" inspect mrope
must 'by file' exits 0 'a group of one rank' "$strata" inspect "$ST_BUILDDIR/plugins/.libs/self.so"
must 'by symbol' exits 0 'symbol -' "$strata" inspect --symbol=-
must 'as JSON' exits 0 '"key": "base"' "$strata" inspect mrope --format=json
must 'as Markdown' exits 0 '| `base` | number | `1e7` |' "$strata" inspect mrope --format md
must 'the host shows its own keys' exits 0 'peak learning rate' "$strata" inspect --spec
must 'as Markdown' exits 0 '| `plugin` | text | adamw |' "$strata" inspect --spec --format=md
must 'as JSON' exits 0 '"section": "dataset.NAME"' "$strata" inspect --spec --format=json
must 'with a plugin that is wrong usage' exits 2 'or --spec' "$strata" inspect mrope --spec
must 'an unknown name gives the nearest' exits 1 'did you mean mrope?' "$strata" inspect mropee
must 'an unknown symbol lists the known' exits 1 '- swiglu' "$strata" inspect --symbol '?'
must 'a missing file is refused' exits 1 'does not exist' "$strata" inspect ./nothing.so
must 'an unknown format is wrong usage' exits 2 "'xml'" "$strata" inspect mrope --format=xml
must 'an unknown kind is wrong usage' exits 2 "'lair'" "$strata" inspect mrope --kind=lair
must 'nothing to inspect is wrong usage' exits 2 'or --symbol' "$strata" inspect
must 'an option misspelt is no command' exits 2 "there is no option '--verison'; did you mean '--version'?" "$strata" --verison
must 'a full disk is a failure' exits 3 'standard output' sh -c '"$0" --help > /dev/full' "$strata"
tap_done
