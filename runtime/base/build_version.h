// build_version.h - which build of Cairn this program is.
//
// The build makes the definition (cmake/CairnVersion.cmake) and links it into the programs only. So
// only one file is compiled again after a commit. Tests have a definition of their own.
#pragma once

// For example "0.1.0+git1432.8f2c01de", or "0.1.0" when the source came without its history.
extern const char cn_build_version[];
