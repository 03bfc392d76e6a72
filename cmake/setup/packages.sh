# shellcheck shell=sh disable=SC2154
# packages.sh - finds and installs the distribution packages of packages.list.

# Prints the listed packages of the kinds given (build, check, slow) that are not installed.
missing_packages()
{
    wanted=
    for kind; do
        wanted="$wanted $(awk -v kind="$kind" '$1 == kind { print $2 }' "$here/packages.list")"
    done
    # shellcheck disable=SC2086 # a list of words
    installed=" $(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' $wanted 2>/dev/null |
        awk '$1 == "ii" { printf "%s ", $2 }')"
    for package in $wanted; do
        case $installed in
        *" $package "*) ;;
        *) printf '%s ' "$package" ;;
        esac
    done
}

as_root()
{
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

apt_install()
{
    as_root apt-get -q update || echo "The package lists could not all be refreshed."
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends -o DPkg::Lock::Timeout=600 \
        install "$@"
}

ask_to_install()
{
    [ -z "$assume_yes" ] && [ -t 0 ] && [ -t 1 ] || return 0
    printf 'Install them now with apt-get? [Y/n] '
    read -r answer || answer=n
    case $answer in
    '' | [yY]*) ;;
    *) die "the packages above are needed" "Install them, then run this again." ;;
    esac
}

# install_packages KIND...: returns at once when nothing is missing.
install_packages()
{
    command -v dpkg-query >/dev/null 2>&1 ||
        die "this is no Debian system" "Install what cmake/setup/packages.list names, in your system's words." \
            "CONTRIBUTING.md says how to build without this set-up."
    missing=$(missing_packages "$@")
    [ -n "$missing" ] || return 0
    echo "Packages to install: $missing"
    ask_to_install
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null 2>&1 ||
            die "installing packages needs root" "As root: apt-get install $missing"
        sudo -v || die "sudo refused" "As root: apt-get install $missing"
    fi
    # shellcheck disable=SC2086 # a list of words
    step "install packages" packages apt_install $missing ||
        die "apt-get could not install the packages" \
            "Check the network and the machine's apt sources, then run this again."
}
