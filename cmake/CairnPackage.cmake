# What an installation has beside the programs, and the Debian packages: cairn-node, cairn-aggregator,
# cairn-flash, cairn-boards (data) and cairn-update (scripts). "cpack --config build/NAME/CPackConfig.cmake -B DIR" makes them.
include(GNUInstallDirs)

set(package_source ${CMAKE_SOURCE_DIR}/cmake/package)
set(package_build ${CMAKE_BINARY_DIR}/package)
# The project has no mail host (.invalid, RFC 2606). Whoever gives packages to others sets their own address.
set(CAIRN_MAINTAINER "The Cairn contributors <contributors@cairn.invalid>" CACHE STRING "Of the packages")

# All times in packages and documents, so that the same source gives the same bytes.
if(DEFINED ENV{SOURCE_DATE_EPOCH})
    set(cairn_epoch $ENV{SOURCE_DATE_EPOCH})
else()
    execute_process(COMMAND git -c safe.directory=* log -1 --format=%ct WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}
                    OUTPUT_VARIABLE cairn_epoch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT cairn_epoch)
    set(cairn_epoch 1700000000)
endif()
set(ENV{SOURCE_DATE_EPOCH} ${cairn_epoch})
string(TIMESTAMP cairn_day "%Y-%m-%d" UTC)
string(TIMESTAMP cairn_date "%a, %d %b %Y %H:%M:%S +0000" UTC)

if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
    set(package_architecture arm64)
    set(package_sysroot ${CMAKE_SOURCE_DIR}/build/deps/sysroot-arm64)
else()
    set(package_architecture amd64)
    set(package_sysroot "")
endif()

# The releases of CUDA whose compilers copy code of their own into the kernels. The first compiles for all GPUs.
set(package_cuda -)
set(package_releases -)
if(TARGET port_cuda)
    get_target_property(package_releases port_cuda CAIRN_RELEASES)
    list(GET package_releases 0 package_cuda)
    list(JOIN package_releases "," package_releases)
endif()

# cairn_document(PACKAGE NAME COMMAND...): standard output of COMMAND, compressed, as NAME.gz. Made again when
# the program, a file named in COMMAND or one that the scripts read by themselves changes.
function(cairn_document package name)
    set(out ${package_build}/${package}/${name}.gz)
    set(inputs ${CMAKE_SOURCE_DIR}/CHANGELOG.md ${package_source}/${package}.files
        ${package_source}/${package}.examples ${ARGN})
    list(FILTER inputs INCLUDE REGEX "^/")
    foreach(input ${inputs})
        if(NOT EXISTS ${input})
            list(REMOVE_ITEM inputs ${input})
        endif()
    endforeach()
    foreach(target ${package} profile_manual)
        if(TARGET ${target} AND "$<TARGET_FILE:${target}>" IN_LIST ARGN)
            list(APPEND inputs ${target})
        endif()
    endforeach()
    add_custom_command(OUTPUT ${out}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${package_build}/${package}
        COMMAND ${ARGN} > ${package_build}/${package}/${name}
        COMMAND gzip -9nf ${package_build}/${package}/${name}
        DEPENDS ${inputs}
        VERBATIM)
    set_property(GLOBAL APPEND PROPERTY cairn_documents ${out})
endfunction()

# What each package has in /usr/share/doc.
function(cairn_package_documents package)
    set(doc ${CMAKE_INSTALL_DATADIR}/doc/${package})
    cairn_document(${package} changelog
        ${package_source}/make_changelog ${CAIRN_BUILD_VERSION} ${CAIRN_MAINTAINER} ${cairn_date})
    install(FILES ${package_build}/${package}/changelog.gz ${package_source}/copyright
            DESTINATION ${doc} COMPONENT ${package})
endfunction()

# cairn_package(PACKAGE SUMMARY): a program's manual page, bill of materials and completion.
function(cairn_package package summary)
    cairn_package_documents(${package})
    cairn_document(${package} ${package}.1 ${package_source}/make_man ${CAIRN_BUILD_VERSION} ${cairn_day}
        ${package} ${summary} ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${package}>)
    cairn_document(${package} sbom.spdx.json ${package_source}/make_sbom ${package} ${CAIRN_BUILD_VERSION}
        ${package_architecture} ${cairn_epoch} ${package_releases} ${package_sysroot})
    install(FILES ${package_build}/${package}/${package}.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
            COMPONENT ${package})
    install(FILES ${package_build}/${package}/sbom.spdx.json.gz
            DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${package})
    # Linked statically on purpose; lintian asks for an override then.
    set(overrides "${package}: embedded-library *\n")
    if(package STREQUAL cairn-flash) # it reads the one of an image, which no tool of dpkg can
        string(APPEND overrides "${package}: uses-dpkg-database-directly *\n")
    endif()
    file(WRITE ${package_build}/${package}/overrides "${overrides}")
    install(FILES ${package_build}/${package}/overrides RENAME ${package}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${package})
    install(FILES ${package_source}/completion.bash RENAME ${package}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${package})
    install(FILES ${package_source}/completion.zsh RENAME _${package}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT ${package})
    install(FILES ${package_source}/completion.fish RENAME ${package}.fish
            DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${package})
endfunction()

# cairn_service(PACKAGE): its unit, options and maintainer scripts. The caller sets the variables that they
# contain: state, states, state_files, instances, own_files, own_folders, oldest, newest, finish.
function(cairn_service package)
    set(unit ${package}.service)
    set(version ${CAIRN_BUILD_VERSION})
    string(REPLACE /var/lib/ /var/lib/private/ private "${states}")
    install(FILES ${package_source}/${unit} DESTINATION lib/systemd/system COMPONENT ${package})
    install(FILES ${package_source}/${package}.default DESTINATION /etc/default RENAME ${package}
            COMPONENT ${package})
    foreach(script preinst postinst prerm postrm)
        configure_file(${package_source}/${script}.in ${package_build}/${package}/control/${script} @ONLY
                       FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
                                        WORLD_READ WORLD_EXECUTE)
    endforeach()
    file(WRITE ${package_build}/${package}/control/conffiles "/etc/default/${package}\n")
    string(TOUPPER ${package} upper)
    set(control preinst postinst prerm postrm conffiles)
    list(TRANSFORM control PREPEND ${package_build}/${package}/control/)
    set(CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA "${control}" PARENT_SCOPE)
endfunction()

# cairn_number(RESULT HEADER MACRO): the number that a header defines.
function(cairn_number result header macro)
    file(STRINGS ${CMAKE_SOURCE_DIR}/${header} line REGEX "define ${macro} ")
    string(REGEX REPLACE ".*define ${macro} ([0-9]+).*" "\\1" number "${line}")
    set(${result} ${number} PARENT_SCOPE)
endfunction()

cairn_number(newest runtime/round/checkpoint/checkpoint.h CN_CHECKPOINT_VERSION)
cairn_number(oldest runtime/round/checkpoint/checkpoint.h CN_CHECKPOINT_OLDEST)
set(finish "Before the upgrade, let this board finish the run with the installed version.")
set(state /var/lib/cairn)
set(states "/var/lib/cairn /var/lib/cairn-nodes/*") # the second: of cairn-node@NAME
set(state_files "checkpoint.a checkpoint.b run-*.checkpoint.a run-*.checkpoint.b")
set(instances "cairn-node@*.service")
set(own_files "/etc/cairn/node.yaml /etc/cairn/node.key /etc/cairn/nodes/*.yaml /etc/cairn/nodes/*.key")
string(APPEND own_files " /etc/systemd/system/cairn-node*.service.d/jetson-gpu.conf")
set(own_folders "/etc/cairn/nodes /etc/systemd/system/cairn-node@.service.d /var/lib/cairn-nodes /var/lib/private/cairn-nodes")
file(READ ${package_source}/jetson_gpu.in on_configure)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${package_source}/jetson_gpu.in)
cairn_package(cairn-node "train a model on this board, with others or alone")
cairn_service(cairn-node)
install(FILES ${package_source}/jetson-gpu.conf DESTINATION ${CMAKE_INSTALL_DATADIR}/cairn-node COMPONENT cairn-node)
install(FILES ${package_source}/cairn-gpu.service DESTINATION lib/systemd/system COMPONENT cairn-node)
# Several nodes on one machine: cairn-node@NAME is the service with files of its own, under a common limit of memory.
file(READ ${package_source}/cairn-node.service unit)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${package_source}/cairn-node.service)
foreach(change "on this board|on this board (%i)" "/etc/cairn/node.|/etc/cairn/nodes/%i."
        "StateDirectory=cairn|StateDirectory=cairn-nodes/%i" "%S/cairn/|%S/cairn-nodes/%i/"
        "DynamicUser=yes|DynamicUser=yes\nUser=cairn-%i" # systemd gives instances one user else
        "OOMPolicy=stop|OOMPolicy=stop\nSlice=cairn-nodes.slice")
    string(REPLACE "|" ";" change "${change}")
    list(GET change 0 old)
    list(GET change 1 new)
    if(NOT unit MATCHES "${old}")
        message(FATAL_ERROR "cairn-node.service has no '${old}', which cairn-node@.service replaces")
    endif()
    string(REPLACE "${old}" "${new}" unit "${unit}")
endforeach()
file(WRITE ${package_build}/cairn-node/cairn-node@.service "${unit}")
install(FILES ${package_build}/cairn-node/cairn-node@.service ${package_source}/cairn-nodes.slice
        DESTINATION lib/systemd/system COMPONENT cairn-node)
set(on_configure "")
cairn_document(cairn-node PROFILES.md cat ${CMAKE_SOURCE_DIR}/runtime/profile/PROFILES.md)
install(FILES ${package_build}/cairn-node/PROFILES.md.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-node
        COMPONENT cairn-node)

cairn_number(newest aggregator/ledger/ledger.h CN_LEDGER_SCHEMA)
cairn_number(oldest aggregator/ledger/ledger.h CN_LEDGER_OLDEST)
set(finish "Before the upgrade, finish the run with the installed version, or take the model out: cairn-aggregator export.")
set(state /var/lib/cairn-aggregator)
set(states ${state})
set(state_files ledger.sqlite)
set(instances "cairn-aggregator@*.service") # there are none
set(own_files /etc/cairn/gateway.yaml)
set(own_folders "")
file(READ ${package_source}/sysusers.in on_configure)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${package_source}/sysusers.in)
cairn_package(cairn-aggregator "run rounds and merge the updates of many boards")
cairn_service(cairn-aggregator)
foreach(role view operator admin)
    install(FILES ${package_source}/cairn-aggregator-${role}.socket DESTINATION lib/systemd/system
            COMPONENT cairn-aggregator)
endforeach()
install(FILES ${package_source}/cairn-aggregator.sysusers DESTINATION lib/sysusers.d RENAME cairn-aggregator.conf
        COMPONENT cairn-aggregator)
set(on_configure "")

cairn_package(cairn-flash "put Cairn on boards and wait until they have joined")

cairn_package_documents(cairn-boards)
cairn_document(cairn-boards sbom.spdx.json ${package_source}/make_sbom cairn-boards ${CAIRN_BUILD_VERSION} all
               ${cairn_epoch} -)
install(FILES ${package_build}/cairn-boards/sbom.spdx.json.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-boards COMPONENT cairn-boards)
cairn_document(cairn-boards cairn-profile.5 ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:profile_manual>
               ${CAIRN_BUILD_VERSION} ${cairn_day})
install(FILES ${package_build}/cairn-boards/cairn-profile.5.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man5
        COMPONENT cairn-boards)
file(GLOB boards RELATIVE ${CMAKE_SOURCE_DIR}/boards CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/boards/*/board.yaml)
foreach(board ${boards})
    get_filename_component(folder ${board} DIRECTORY)
    set(board_files boards/${board} boards/${folder}/README.md)
    if(EXISTS ${CMAKE_SOURCE_DIR}/boards/${folder}/compatible)
        list(APPEND board_files boards/${folder}/compatible)
    endif()
    install(FILES ${board_files}
            DESTINATION ${CMAKE_INSTALL_DATADIR}/cairn/boards/${folder} COMPONENT cairn-boards)
endforeach()

install(DIRECTORY boards/examples DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-boards COMPONENT cairn-boards)

# Scripts for boards with two systems.
cairn_package_documents(cairn-update)
cairn_document(cairn-update sbom.spdx.json ${package_source}/make_sbom cairn-update ${CAIRN_BUILD_VERSION} all
               ${cairn_epoch} -)
install(FILES ${package_build}/cairn-update/sbom.spdx.json.gz
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-update COMPONENT cairn-update)
configure_file(${package_source}/cairn-update.8.in ${package_build}/cairn-update/cairn-update.8.roff @ONLY)
cairn_document(cairn-update cairn-update.8 cat ${package_build}/cairn-update/cairn-update.8.roff)
install(FILES ${package_build}/cairn-update/cairn-update.8.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man8
        COMPONENT cairn-update)
install(PROGRAMS boards/update/cairn-update DESTINATION sbin COMPONENT cairn-update)
install(PROGRAMS boards/update/cairn-boot DESTINATION lib/cairn-update COMPONENT cairn-update)
file(GLOB update_parts CONFIGURE_DEPENDS boards/update/*.sh)
install(FILES ${update_parts} DESTINATION lib/cairn-update COMPONENT cairn-update)
install(FILES ${package_source}/cairn-update-keep.service ${package_source}/cairn-update-check.service
        DESTINATION lib/systemd/system COMPONENT cairn-update)
install(FILES ${package_source}/nv-l4t-bootloader-config.conf RENAME cairn-update.conf
        DESTINATION lib/systemd/system/nv-l4t-bootloader-config.service.d COMPONENT cairn-update)
install(FILES ${package_source}/cairn-update.default DESTINATION /etc/default RENAME cairn-update
        COMPONENT cairn-update)
install(FILES boards/update/README.md DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cairn-update COMPONENT cairn-update)
# So that a system that comes up only in part is given up, too.
file(WRITE ${package_build}/cairn-update/overrides
     "cairn-update: systemd-service-file-refers-to-unusual-wantedby-target *\n")
install(FILES ${package_build}/cairn-update/overrides RENAME cairn-update
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT cairn-update)
file(WRITE ${package_build}/cairn-update/control/conffiles "/etc/default/cairn-update\n")
foreach(script postinst postrm)
    configure_file(${package_source}/cairn-update.${script} ${package_build}/cairn-update/control/${script} COPYONLY)
endforeach()
set(control conffiles postinst postrm)
list(TRANSFORM control PREPEND ${package_build}/cairn-update/control/)
set(CPACK_DEBIAN_CAIRN-UPDATE_PACKAGE_CONTROL_EXTRA "${control}")

get_property(documents GLOBAL PROPERTY cairn_documents)
add_custom_target(cairn_documents ALL DEPENDS ${documents})
add_dependencies(cairn_documents cairn-node cairn-aggregator cairn-flash)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cairn)
set(CPACK_PACKAGE_VERSION ${CAIRN_BUILD_VERSION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL cairn-node cairn-aggregator cairn-flash cairn-boards cairn-update)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CAIRN_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${package_architecture})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_STRIP_EXECUTABLE ${CMAKE_STRIP})
set(CPACK_PROJECT_CONFIG_FILE ${package_build}/cpack.cmake)
file(WRITE ${package_build}/cpack.cmake "set(ENV{SOURCE_DATE_EPOCH} ${cairn_epoch})\n")

set(libc "libc6 (>= 2.34)") # tests/linkage holds the programs to it
set(CPACK_DEBIAN_CAIRN-NODE_PACKAGE_NAME cairn-node)
set(CPACK_DEBIAN_CAIRN-NODE_PACKAGE_DEPENDS ${libc})
set(CPACK_DEBIAN_CAIRN-NODE_PACKAGE_RECOMMENDS "cairn-boards")
if(NOT package_cuda STREQUAL "-") # cairn-flash compares it with the board's driver
    set(CPACK_DEBIAN_CAIRN-NODE_PACKAGE_PROVIDES "cairn-node-cuda (= ${package_cuda})")
endif()
set(CPACK_COMPONENT_CAIRN-NODE_DESCRIPTION "training of a shared model on an edge board
cairn-node trains on the data of one board, with the boards of its LAN and an
aggregator on a gateway. Only compressed updates leave the board. It may be
stopped at any instruction and goes on with the same model.")
set(CPACK_DEBIAN_CAIRN-AGGREGATOR_PACKAGE_NAME cairn-aggregator)
set(CPACK_DEBIAN_CAIRN-AGGREGATOR_PACKAGE_DEPENDS ${libc})
set(CPACK_DEBIAN_CAIRN-AGGREGATOR_PACKAGE_RECOMMENDS "cairn-boards")
set(CPACK_COMPONENT_CAIRN-AGGREGATOR_DESCRIPTION "rounds of federated training, for a gateway
cairn-aggregator runs the rounds of a training job, keeps a durable ledger of
the boards' updates, merges them and serves the versions of the model.")
set(CPACK_DEBIAN_CAIRN-FLASH_PACKAGE_NAME cairn-flash)
set(CPACK_DEBIAN_CAIRN-FLASH_PACKAGE_DEPENDS "${libc}, e2fsprogs")
set(CPACK_DEBIAN_CAIRN-FLASH_PACKAGE_RECOMMENDS "cairn-boards, mtools, openssh-client, xz-utils, zstd")
set(CPACK_DEBIAN_CAIRN-FLASH_PACKAGE_SUGGESTS "cairn-aggregator, rauc (>= 1.8), squashfs-tools")
set(CPACK_COMPONENT_CAIRN-FLASH_DESCRIPTION "puts Cairn on edge boards and verifies it
cairn-flash injects the packages, the profile and the key of a board into a
vendor's image, writes cards and reads them back, prepares a root folder or a
running board, and waits until the aggregator has heard the board.")
set(CPACK_DEBIAN_CAIRN-BOARDS_PACKAGE_NAME cairn-boards)
set(CPACK_DEBIAN_CAIRN-BOARDS_PACKAGE_ARCHITECTURE all)
set(CPACK_COMPONENT_CAIRN-BOARDS_DESCRIPTION "types of boards that Cairn knows
What each type of board is (memory, power, sensors, storage), as profiles that
 a site's profile extends, and notes on how to install it.")
set(CPACK_DEBIAN_CAIRN-UPDATE_PACKAGE_NAME cairn-update)
set(CPACK_DEBIAN_CAIRN-UPDATE_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_CAIRN-UPDATE_PACKAGE_DEPENDS "cairn-node, rauc (>= 1.8), rauc-service")
set(CPACK_DEBIAN_CAIRN-UPDATE_PACKAGE_SUGGESTS "libubootenv-tool")
set(CPACK_COMPONENT_CAIRN-UPDATE_DESCRIPTION "updates of boards with two systems, and the way back
Installs RAUC bundles between two rounds of training, keeps a new system whose
node registers, and starts the old one again after three tries. Knows how a
Jetson, a Raspberry Pi and boards with U-Boot choose between two systems.")
include(CPack)
