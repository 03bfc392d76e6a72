#!/bin/sh
# model.sh - searches group.pml, parts.pml and waits.pml with Spin: the protocol must hold, with and without chains, and
# without each of its protections break.
#
# usage: tests/model/model.sh FOLDER [DEFINE...]
#
# FOLDER takes the generated programs. With DEFINEs (-DEPOCHS=4) only group.pml is searched, with them.
# Exits with 77 where spin or a C compiler is missing.
set -u

here=$(cd "$(dirname "$0")" && pwd)
folder=$1
shift
for tool in spin "${CC:=cc}"; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not there" && exit 77; }
done

model=group.pml

# search NAME DEFINE...: searches $model; leaves the result in $folder/NAME/result.
search()
{
    mkdir -p "$folder/$1" && cd "$folder/$1" || exit 1
    shift
    spin -a "$@" "$here/$model" >generated && "$CC" -O2 -w -DSAFETY -DCOLLAPSE -DMEMLIM=1900 -o pan pan.c || exit 1
    nice ./pan -m200000 -w24 >result
}

figures()
{
    sed -n 's/.*errors: \([0-9]*\)/errors \1/p; s/^ *\([0-9]*\) states, stored/\1 states/p
            s/^ *\([0-9.]*\).*total actual.*/\1 MB/p; s/pan: elapsed time/time/p' result | paste -sd' '
}

# holds NAME DEFINE...: exhausted, and nothing violated.
holds()
{
    (
        search "$@"
        echo "$1 holds: $(figures)"
        grep -q 'errors: 0' result && ! grep -q 'max search depth too small\|Search not completed\|out of memory' result
    ) || { cat "$folder/$1/result" && exit 1; }
}

if [ $# -gt 0 ]; then
    holds protocol "$@"
    exit 0
fi
holds protocol -DEPOCHS=2
holds chain -DCHAIN -DEPOCHS=2

# breaks NAME ASSERTION [DEFINE...]: what the search must find when NAME is defined.
breaks()
{
    (
        name=$1 assertion=$2
        shift 2
        search "$name" "-D$name" -DEPOCHS=3 "$@"
        echo "$name${1+ with $*} breaks: $(sed -n 's/^pan:1: //p' result) $(figures)"
        grep -q "assertion violated.*$assertion" result
    ) || { echo "$1 breaks nothing, or something else" && exit 1; }
}

breaks NO_PERSIST 'view=='
breaks NO_STAY 'now.step>='
breaks NO_NEWEST 'now.step>='
breaks NO_VOTE 'now.result=='
breaks NO_FENCE 'accepted=='
breaks NO_LINEAGE '!(delivered)'
breaks NO_VOTE 'now.result==' -DCHAIN
breaks NO_WAIT 'view&(m' -DCHAIN
breaks NO_STOP '.step==m\[i\].step' -DCHAIN
breaks NO_GO_BACK '.step==m\[i\].step' -DCHAIN
breaks NO_GATHER 'now.lacks' -DCHAIN

model=parts.pml
holds parts -DEPOCHS=2
holds parts -DEPOCHS=2 -DSTEPS=4 -DF=1
holds parts -DF=1 -DREFUSED=0
breaks NO_COVER 'found'
breaks NO_EPOCH 'found'
breaks NO_OTHER 'agreed'
breaks NO_SLOTS 'agreed'
breaks NO_AGREE 'agreed' -DNO_WHOLE_VOTE -DSTEPS=4 -DF=0

model=waits.pml
holds waits
holds waits -DROUNDS=3 -DRESULTS=1 -DLOST=0
breaks NO_STORE_FIRST 'damaged'
breaks NO_COPY 'damaged'
breaks NO_CONTENT '==0'
breaks NO_SECURE 'given'
breaks NO_LATER 'damaged' -DROUNDS=3 -DRESULTS=1 -DLOST=0
