// usage_posix.c - memory, processor time and files of this process, from Linux's /proc.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/platform.h"

static uint64_t read_resident(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long all, resident = 0;
    if (file && fscanf(file, "%llu %llu", &all, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

// A process that hides its memory cannot read this directory unless it is root.
static uint32_t count_files(void)
{
    DIR *directory = opendir("/proc/self/fd");
    uint32_t count = 0;
    if (!directory)
        return 0;
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count - 1; // the directory itself
}

static double seconds(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

// The start is the 22nd field of /proc/self/stat, in clock ticks after boot (proc(5)). The second
// field is the program's name in brackets, which may hold blanks.
uint64_t cn_platform_process_start(void)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char line[1024] = "";
    unsigned long long ticks = 0;
    const char *rest = file && fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
    if (file)
        fclose(file);
    if (rest && sscanf(rest + 1,
                       " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                       "%*d %llu",
                       &ticks) != 1)
        return 0;
    return ticks;
}

static double read_start(void)
{
    uint64_t ticks = cn_platform_process_start();
    struct timespec now, boot;
    if (!ticks)
        return 0;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &boot);
    return (double)now.tv_sec - (double)boot.tv_sec + (double)ticks / (double)sysconf(_SC_CLK_TCK);
}

void cn_platform_read_usage(struct cn_platform_usage *usage)
{
    struct rusage used;
    struct rlimit limit;
    *usage = (struct cn_platform_usage){
        .resident = read_resident(),
        .files = count_files(),
        .since_epoch_s = read_start(),
    };
    if (getrusage(RUSAGE_SELF, &used) == 0)
        usage->cpu_s = seconds(&used.ru_utime) + seconds(&used.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        usage->files_most = limit.rlim_cur;
}
