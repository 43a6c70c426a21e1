-- The tenant is compared as in claim_read.sql.
-- $1 tenant, $2 key
select tenant, id, key, action, state, generation, runs, replays, fence, open_calls, receives, carrier, owner, owner_epoch,
       cancel, input_hash, input_kept, cost, reserved, budget, error_class, error_text, origin, created_at, updated_at, next_at, done_at,
       attempts - coalesce(uncounted, 0) as calls, coalesce(max_calls, 0) as max_calls, coalesce(lifetime, '0') as lifetime,
       coalesce(began_at, created_at) as began_at
from paidonce.job where key = $2 and tenant = $1 collate "C"
