#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# prove-fresh-debian.sh - run the README's first command, as written there, on a Debian 12 that has never seen strata, and see
# that the model it trains has learned to read: of the content of receipts it has not seen, at least 80 % is right, and at most
# 30 % when pictures are exchanged among receipts.
#
# A minimal bookworm is unpacked by debootstrap into a new folder, the committed tree (HEAD) is copied into it, and the command
# is run in a chroot as root. Packages come from this machine's Debian mirror with this machine's apt settings. Mounts live in
# a namespace of their own, so they end with this script however it ends.
#
#   --limit SECONDS   fail when the command takes longer
#   --keep            leave the folder behind and print its name
#   --dir DIR         make the folder inside DIR (default: $TMPDIR or /var/tmp)
set -euo pipefail

usage() { sed -n '/^#   --/s/^# //p' "$0" >&2; exit 2; }
fail() { echo "prove-fresh-debian: $*" >&2; exit 1; }

limit=0
keep=no
parent=${TMPDIR:-/var/tmp}
args=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --limit) limit=${2:?$(usage)}; shift ;;
    --keep) keep=yes ;;
    --dir) parent=${2:?$(usage)}; shift ;;
    *) usage ;;
    esac
    shift
done

[ "$(id -u)" = 0 ] || fail 'must run as root, for debootstrap and chroot'
for tool in debootstrap git unshare; do
    command -v $tool >/dev/null || fail "$tool is missing (apt-get install debootstrap git util-linux)"
done
[ "${STRATA_FRESH_NAMESPACE:-}" = yes ] || STRATA_FRESH_NAMESPACE=yes exec unshare --mount "$BASH" "$0" "${args[@]}"

top=$(cd "$(dirname "$0")/.." && pwd)
command=$("$top/tools/readme-command.sh" 1 "$top/README.md")
folder=$(mktemp -d "$parent/strata-fresh.XXXXXX")
root=$folder/root

clean() {
    umount "$root/proc" 2>/dev/null || true
    if [ $keep = yes ]; then echo "left behind: $root"; else rm -rf --one-file-system "$folder"; fi
}
trap clean EXIT
trap 'exit 1' INT TERM HUP

# The mirror that apt uses here for bookworm, or Debian's own.
# shellcheck disable=SC2016 # apt-get fills these in
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' 2>/dev/null |
    awk '$2 == "bookworm" { print $1; exit }')
mirror=${mirror:-http://deb.debian.org/debian}
echo "== a bare Debian 12 from $mirror"
debootstrap --variant=minbase bookworm "$root" "$mirror" > "$folder/debootstrap.log" 2>&1 ||
    { tail -n 20 "$folder/debootstrap.log" >&2; fail 'debootstrap failed'; }

apt-config dump Acquire > "$root/etc/apt/apt.conf.d/90host"
if grep -q 'VERSION_CODENAME=bookworm' /etc/os-release; then
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
        [ ! -e $file ] || cp $file "$root$file"
    done
fi
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
mount -t proc proc "$root/proc"
mkdir "$root/root/strata"
git -C "$top" archive HEAD | tar -x -C "$root/root/strata"

echo "== the README's first command"
printf '%s\n' "$command"
begin=$SECONDS
env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 TERM=dumb \
    DEBIAN_FRONTEND=noninteractive ${OPENBLAS_CORETYPE:+OPENBLAS_CORETYPE="$OPENBLAS_CORETYPE"} \
    chroot "$root" sh -c "cd /root/strata && $command" < /dev/null || fail "the command failed with status $?"
took=$((SECONDS - begin))
echo "== the README's first command took $took s on $(nproc) cores"

# score KEY: its last value in the metrics
score() { sed -n "s/.*\"$1\": *\([-+.0-9e]*\).*/\1/p" "$root/root/strata/runs/receipts-tiny/metrics.jsonl" | tail -n 1; }
awk -v read="$(score eval_content_accuracy)" -v exchanged="$(score eval_permuted_content_accuracy)" 'BEGIN {
    printf "== content right: %.1f %%, with pictures exchanged %.1f %%\n", 100 * read, 100 * exchanged
    exit !(read != "" && exchanged != "" && read >= 0.8 && exchanged <= 0.3)
}' || fail 'the model does not read: at least 80 % of the content must be right, at most 30 % with pictures exchanged'
[ "$limit" = 0 ] || [ $took -le "$limit" ] || fail "that is more than $limit s"
