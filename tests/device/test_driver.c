/* test_driver.c - the CUDA driver, cuBLASLt, CUPTI and NCCL as shared libraries: which are taken, and what is said of others. */
#include <sys/wait.h>

#include "fake_driver.h"
#include "runtime/device/cuda/activity.h"
#include "runtime/device/cuda/nccl.h"
#include "tables.h"
#include "tests/temp.h"

typedef struct Answer {
    FtxStatus first, again;
    size_t version;
    FtxError why, why_again;
} Answer;

static void ask_driver(Answer *a)
{
    const CudaDriver *cu;
    int version = 0;

    a->first = cuda_driver(&cu, &a->why);
    if (!a->first)
        cu->cuDriverGetVersion(&version);
    a->version = (size_t)version;
    unsetenv("FTX_CUDA");
    a->again = cuda_driver(&cu, &a->why_again);
}

static void ask_blas(Answer *a)
{
    a->first = lt_version(&a->version, &a->why);
    unsetenv("FTX_CUDA");
    a->again = lt_version(&a->version, &a->why_again);
}

static FtxStatus open_cupti(FtxError *err)
{
    static const Memory from_malloc;
    Activities *a;
    const FtxStatus s = activity_open(&from_malloc, NULL, NULL, 10, &a, err);

    activity_close(a);
    return s;
}

static void ask_cupti(Answer *a)
{
    a->first = open_cupti(&a->why);
    unsetenv("FTX_CUDA");
    a->again = open_cupti(&a->why_again);
}

static void ask_nccl(Answer *a)
{
    int version, again;

    a->first = nccl_version(&version, &a->why);
    a->version = (size_t)version;
    unsetenv("FTX_CUDA");
    a->again = nccl_version(&again, &a->why_again);
}

/* A process looks for a library once. So each question is asked in a process of its own: twice, the second time
 * without FTX_CUDA. It ends by exit, which writes the counts of scripts/coverage, and leaves the folder to its parent. */
static Answer ask(void (*question)(Answer *a), const char *cuda)
{
    Answer a = {0};
    int pipes[2], status;

    assert_int_equal(pipe(pipes), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("FTX_CUDA", cuda, 1);
        question(&a);
        *temp_folder = '\0';
        exit(write(pipes[1], &a, sizeof a) != sizeof a);
    }
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &a, sizeof a), sizeof a);
    close(pipes[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(a.again, a.first);
    assert_string_equal(a.why_again.text, a.why.text);
    return a;
}

/* The test's folder with a stub under the names of both libraries. */
static const char *folder_of(const char *stub)
{
    const char *names[] = {temp_path("libcuda.so.1"), temp_path("libcublasLt.so.13"), temp_path("libcupti.so.13"),
                           temp_path("libnccl.so.2")};

    for (int i = 0; i < 4; i++) {
        unlink(names[i]);
        assert_int_equal(symlink(stub, names[i]), 0);
    }
    return temp_folder;
}

static void a_new_one_is_taken(void **state)
{
    Answer a = ask(ask_driver, folder_of(STUB_NEW));

    (void)state;
    assert_int_equal(a.first, FTX_OK);
    assert_int_equal(a.version, 12040);
    a = ask(ask_blas, folder_of(STUB_NEW));
    assert_int_equal(a.first, FTX_OK);
    assert_int_equal(a.version, 120400);
    assert_int_equal(ask(ask_cupti, folder_of(STUB_NEW)).first, FTX_OK);
    a = ask(ask_nccl, folder_of(STUB_NEW));
    assert_int_equal(a.first, FTX_OK);
    assert_int_equal(a.version, 21800);
}

static void an_old_one_is_not(void **state)
{
    Answer a = ask(ask_driver, folder_of(STUB_OLD));

    (void)state;
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text,
                        "the CUDA driver is too old: it is for CUDA 12.3, needed is 12.4 (driver 550 or newer)");
    a = ask(ask_blas, folder_of(STUB_OLD));
    assert_int_equal(a.first, FTX_EDEVICE);
    assert_string_equal(a.why.text, "cuBLASLt is too old: version 12.3, needed is 12.4 or newer");
    a = ask(ask_cupti, folder_of(STUB_OLD));
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "CUPTI is too old: version 17, needed is 18 (CUDA 12)");
    a = ask(ask_nccl, folder_of(STUB_OLD));
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "NCCL is too old: version 2.17, needed is 2.18 or newer");
}

static void a_missing_function_is_named(void **state)
{
    Answer a = ask(ask_driver, folder_of(STUB_PARTIAL));

    (void)state;
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "the CUDA driver (for CUDA 12.4) has no cuFuncLoad");
    a = ask(ask_cupti, folder_of(STUB_PARTIAL));
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "CUPTI has no cuptiGetTimestamp");
    a = ask(ask_nccl, folder_of(STUB_PARTIAL));
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "NCCL has no ncclSend");
}

/* A folder without any: the machine's own are taken, and where it has none the message says so. */
static void a_missing_one_is_named(void **state)
{
    const Answer cupti = ask(ask_cupti, "/nowhere"), blas = ask(ask_blas, "/nowhere"), nccl = ask(ask_nccl, "/nowhere");

    (void)state;
    if (cupti.first == FTX_ENODEVICE)
        assert_non_null(strstr(cupti.why.text, "no CUPTI on this machine: libcupti.so"));
    if (blas.first)
        assert_non_null(strstr(blas.why.text, "large matrix products need cuBLASLt"));
    if (nccl.first)
        assert_non_null(strstr(nccl.why.text, "GPUs of several processes need NCCL (the package libnccl2"));
}

static void it_is_not_used_where_the_user_says_so(void **state)
{
    const Answer a = ask(ask_driver, "0");

    (void)state;
    assert_int_equal(a.first, FTX_ENODEVICE);
    assert_string_equal(a.why.text, "the CUDA driver is not used, because FTX_CUDA is 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_one_is_taken),
        cmocka_unit_test(an_old_one_is_not),
        cmocka_unit_test(a_missing_function_is_named),
        cmocka_unit_test(a_missing_one_is_named),
        cmocka_unit_test(it_is_not_used_where_the_user_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
