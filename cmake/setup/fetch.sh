# shellcheck shell=sh disable=SC2154
# fetch.sh - gets the source archives of sources.lock from Debian's source packages.
#
# apt runs with lists and sources of its own under build/deps/apt: the system's stay as they are. The
# mirror is the one this machine's apt uses; the suites are those that carry the versions of the lock.

suites='trixie sid'

sha256_is()
{
    [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]
}

lock_lines()
{
    awk -v name="$1" '$1 == name' "$here/sources.lock"
}

# The mirror of the machine's own Debian entry: not a third party's, not security or updates.
find_mirror()
{
    # shellcheck disable=SC2016 # apt's own words
    apt-get indextargets --format '$(REPO_URI) $(LABEL) $(CODENAME)' 'Created-By: Packages' |
        awk '$2 == "Debian" && $3 !~ /-/ { print $1; exit }'
}

start_apt()
{
    mirror=$(find_mirror)
    if [ -z "$mirror" ]; then
        as_root apt-get -q update # without lists apt does not know whose mirror is whose
        mirror=$(find_mirror)
    fi
    if [ -z "$mirror" ]; then
        echo "This machine's apt has no entry for a Debian mirror."
        return 1
    fi
    apt=$deps/apt
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    signed=
    if [ -f "$keyring" ]; then signed="[signed-by=$keyring] "; fi
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    for suite in $suites; do echo "deb-src $signed$mirror $suite main"; done >"$apt/sources.list"
    cat >"$apt/apt.conf" <<-END
	Dir::Etc::sourcelist "$apt/sources.list";
	Dir::Etc::sourceparts "/dev/null";
	Dir::Etc::preferences "/dev/null";
	Dir::Etc::preferencesparts "/dev/null";
	Dir::State::lists "$apt/lists";
	Dir::Cache "$apt/cache";
	Acquire::Retries "3";
	Acquire::Languages "none";
	APT::Sandbox::User "$(id -un)";
	END
    # The digests of the lock say what is right; a mirror that lags may serve it.
    if [ -z "$unpinned" ]; then echo 'Acquire::Check-Valid-Until "false";' >>"$apt/apt.conf"; fi
    APT_CONFIG=$apt/apt.conf apt-get -q update
}

# Prints "version file sha256" for each archive of a source package in the signed index.
index_of()
{
    APT_CONFIG=$apt/apt.conf apt-cache showsrc --only-source "$1" | awk '
        /^Version:/ { version = $2 }
        /^[A-Z]/ { listing = 0 }
        /^Checksums-Sha256:/ { listing = 1; next }
        listing && $3 ~ /\.tar\.[a-z0-9]+$/ { print version, $3, $1 }'
}

# fetch_archive PART SOURCE VERSION FILE SHA256: into the archive folder, by apt.
fetch_archive()
{
    rm -rf "$deps/fetch"
    mkdir -p "$deps/fetch"
    (
        cd "$deps/fetch" || exit 1
        APT_CONFIG=$apt/apt.conf apt-get -q "--$1-only" --download-only source "$2=$3" </dev/null
    )
    if sha256_is "$deps/fetch/$4" "$5"; then
        mv "$deps/fetch/$4" "$archives/$4"
    else
        echo "$4 of $2 $3: not on this mirror, or not the file that the lock names."
        return 1
    fi
}

# fetch_pinned NAME: the first line of the lock that the index still carries, in whatever version.
fetch_pinned()
{
    lock_lines "$1" | while read -r _ part source _ file sha; do
        version=$(index_of "$source" | awk -v f="$file" -v s="$sha" '$2 == f && $3 == s { print $1; exit }')
        if [ -n "$version" ] && fetch_archive "$part" "$source" "$version" "$file" "$sha" >&2; then
            echo "$file"
            break
        fi
    done
}

# fetch_newest NAME: the newest version of the index in the lock's series. The series of an upstream
# archive is major.minor; Debian's patches belong to one upstream version.
fetch_newest()
{
    read -r _ part source version _ _ <<-END
	$(lock_lines "$1")
	END
    if [ "$part" = tar ]; then
        series=$(echo "$version" | cut -d . -f 1,2).
    else
        series=${version%%-*}-
    fi
    index_of "$source" | awk -v part="$part" -v series="$series" '
        index($1, series) == 1 && ($2 ~ /\.debian\.tar/) == (part == "diff")' |
        sort -rV | while read -r version file sha; do
        if fetch_archive "$part" "$source" "$version" "$file" "$sha" >&2; then
            echo "$file"
            break
        fi
    done
}

# The archives at hand: those fetched before, and the folder of --sources.
find_local()
{
    lock_lines "$1" | while read -r _ _ _ _ file sha; do
        for folder in "$archives" "$sources"; do
            if [ -n "$folder" ] && sha256_is "$folder/$file" "$sha"; then
                [ "$folder" = "$archives" ] || cp "$folder/$file" "$archives/$file"
                echo "$file"
                exit 0
            fi
        done
    done
}

# fetch_all NAME...: writes "NAME FILE" lines to build/deps/chosen.
fetch_all()
{
    mkdir -p "$archives"
    started=
    : >"$deps/chosen.new"
    for name; do
        file=
        if [ -z "$unpinned" ]; then file=$(find_local "$name"); fi
        if [ -z "$file" ] && [ -z "$sources" ]; then
            if [ -z "$started" ]; then start_apt || return 1; fi
            started=1
            if [ -n "$unpinned" ]; then file=$(fetch_newest "$name"); else file=$(fetch_pinned "$name"); fi
        fi
        if [ -z "$file" ]; then
            echo "No archive for $name. The lock accepts:"
            lock_lines "$name" | awk '{ print "    " $5 "  sha256 " $6 }'
            return 1
        fi
        echo "$name $file" >>"$deps/chosen.new"
    done
    rm -rf "$deps/fetch"
    mv "$deps/chosen.new" "$deps/chosen"
}

archive_of()
{
    awk -v name="$1" -v folder="$archives" '$1 == name { print folder "/" $2 }' "$deps/chosen"
}
