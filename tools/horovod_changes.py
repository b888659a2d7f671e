"""What is changed in Horovod 0.28.1's source before it is built: one source and debugging left out, and one wait.

Each change names the text that it expects; where that is not there, nothing is built.
"""

import pathlib

# In place of the plain version; `tfmat` recognises by it that Horovod wakes when there is something to sum.
MARKED_VERSION = "0.28.1+wakes"

# Horovod's thread sleeps for HOROVOD_CYCLE_TIME (1 ms) after each round in which it looks whether all ranks want
# something. A short time costs the processor that computes, and each round is a collective that waits for the other
# ranks' threads; a long one delays each sum. With these changes the thread sleeps until a tensor waits, or that long.
_HEADER = "horovod/common/tensor_queue.h"
_QUEUE = "horovod/common/tensor_queue.cc"
CHANGES = {
    # What a debugger would want of the library takes a fifth of the time of its building.
    "CMakeLists.txt": [
        (
            'string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
            'string(REPLACE "-O2 -g" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO',
        )
    ],
    # An XLA operation for GPUs, which needs headers that TensorFlow 2.21 no longer ships.
    "horovod/tensorflow/CMakeLists.txt": [
        (
            'list(APPEND TF_SOURCES "${PROJECT_SOURCE_DIR}/horovod/tensorflow/xla_mpi_ops.cc")\n',
            "",
        )
    ],
    "horovod/__init__.py": [
        ("__version__ = '0.28.1'", f"__version__ = '{MARKED_VERSION}'"),
    ],
    "horovod/common/operations.cc": [
        (
            "    std::this_thread::sleep_for(sleep_duration);\n",
            "    TensorQueue::WaitForTensor(start_time + sleep_duration);\n",
        )
    ],
    _HEADER: [
        ("namespace horovod {\n", "#include <chrono>\n\nnamespace horovod {\n"),
        (
            "  void RemoveJoinTensor();\n",
            """  void RemoveJoinTensor();

  // Sleeps until `deadline`, or until a tensor waits in any queue.
  static void WaitForTensor(std::chrono::steady_clock::time_point deadline);
""",
        ),
        (
            "protected:\n",
            """protected:
  // Adds to the number of tensors that wait in all queues.
  static void CountWaiting(int difference);

""",
        ),
    ],
    _QUEUE: [
        (
            "namespace horovod {\nnamespace common {\n",
            """#include <condition_variable>

namespace horovod {
namespace common {

namespace {
std::mutex waiting_mutex;
std::condition_variable waiting_changed;
int num_waiting = 0;
} // namespace

void TensorQueue::WaitForTensor(
    std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(waiting_mutex);
  waiting_changed.wait_until(lock, deadline, [] { return num_waiting > 0; });
}

void TensorQueue::CountWaiting(int difference) {
  {
    std::lock_guard<std::mutex> guard(waiting_mutex);
    num_waiting += difference;
  }
  if (difference > 0) {
    waiting_changed.notify_one();
  }
}
""",
        ),
        (
            "  message_queue_.push(std::move(message));\n  return Status::OK();\n",
            "  message_queue_.push(std::move(message));\n  CountWaiting(1);\n  return Status::OK();\n",
        ),
        (
            "    message_queue_.push(std::move(messages[i]));\n",
            "    message_queue_.push(std::move(messages[i]));\n    CountWaiting(1);\n",
        ),
        (
            "  tensor_table_.clear();\n",
            "  CountWaiting(-static_cast<int>(tensor_table_.size()));\n  tensor_table_.clear();\n",
        ),
        (
            "        tensor_table_.erase(iter);\n",
            "        tensor_table_.erase(iter);\n        CountWaiting(-1);\n",
        ),
        (
            "  e.FinishWithCallback(Status::OK());\n  tensor_table_.erase(iter);\n",
            "  e.FinishWithCallback(Status::OK());\n  tensor_table_.erase(iter);\n  CountWaiting(-1);\n",
        ),
    ],
}


class UnexpectedSource(Exception):
    """A text that should be replaced is not there once; the message names it."""


def change(source: pathlib.Path) -> None:
    """Makes all changes in the unpacked source; where one does not fit, UnexpectedSource, and nothing is written."""
    changed = {}
    for name, replacements in CHANGES.items():
        text = (source / name).read_text("utf-8")
        for old, new in replacements:
            if text.count(old) != 1:
                wanted = old.strip().splitlines()[-1]
                raise UnexpectedSource(
                    f"{name} holds '{wanted}' {text.count(old)} times, not once as expected"
                )
            text = text.replace(old, new)
        changed[name] = text
    for name, text in changed.items():
        (source / name).write_text(text, "utf-8")
