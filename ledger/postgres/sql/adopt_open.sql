-- Whoever repeats an adoption, having heard nothing, waits here for the end of the one
-- before: until then nobody can tell what was adopted.
-- $1 worker, $2 epoch, $3 token
select exists (select from paidonce.worker where id = $1 and epoch = $2 and closed_at is null) as open
from pg_advisory_xact_lock(hashtextextended($3::uuid::text, 0))
