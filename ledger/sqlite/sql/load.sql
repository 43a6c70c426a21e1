-- A job by its id, with its owner's lease: null when the owner's epoch is closed.
-- tenant, id
select j.tenant, j.id, j.key, j.action, j.input_hash, j.input_kept, j.state, j.generation, j.fence, j.carrier, j.owner, j.owner_epoch, j.claim_token,
       j.run_deadline, j.next_at, j.unknown_at, j.cancel, j.runs, j.panics, j.replays, j.receives, j.open_calls, j.attempts, j.events, j.late,
       j.cost, j.reserved, j.budget, j.error_class, j.error_text, j.result_id, j.created_at, j.updated_at, j.done_at,
       j.origin, j.max_calls, j.lifetime, j.uncounted, j.began_at, w.lease_until
from paidonce_job j
left join paidonce_worker w on w.id = j.owner and w.epoch = j.owner_epoch and w.closed_at is null
where j.tenant = ? and j.id = ?
