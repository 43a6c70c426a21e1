# Python reads this file before moto_server (moto.go puts its folder on PYTHONPATH).
#
# moto answers every request on a thread of its own and changes a queue without a lock.
# A long poll of a FIFO queue whose visible messages belong to held groups takes a whole
# core until it ends, and does not see that a group became free meanwhile. With one such
# poll under way everything else starves, and tests fail that wait for an answer.
# Here calls go one at a time, and a poll that finds nothing sleeps and looks again.
import functools
import os
import threading
import time
import traceback

LOOK_AGAIN = 0.02  # seconds


def one_at_a_time(lock, call):
    @functools.wraps(call)
    def locked(*args, **kwargs):
        with lock:
            return call(*args, **kwargs)

    return locked


def polling(receive):
    @functools.wraps(receive)
    def poll(self, queue_name, count, wait_seconds_timeout, *args, **kwargs):
        end = time.monotonic() + wait_seconds_timeout
        while True:
            messages = receive(self, queue_name, count, 0, *args, **kwargs)
            if messages or time.monotonic() >= end:
                return messages
            time.sleep(LOOK_AGAIN)

    return poll


def repair(backend):
    lock = threading.RLock()
    for name in (
        "send_message",
        "send_message_batch",
        "receive_message",
        "delete_message",
        "delete_message_batch",
        "change_message_visibility",
        "change_message_visibility_batch",
        "purge_queue",
    ):
        setattr(backend, name, one_at_a_time(lock, getattr(backend, name)))
    backend.receive_message = polling(backend.receive_message)


try:
    from moto.sqs.models import SQSBackend

    repair(SQSBackend)
except Exception:
    # Without this, Python would say so and start an unrepaired server.
    traceback.print_exc()
    os._exit(1)
