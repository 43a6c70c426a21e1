-- Running jobs of a worker that a person flagged, of all tenants. Only running and unknown ones have an owner; said
-- like this, the index of open jobs is no way to find them, which would read all that the worker runs.
-- $1 id, $2 epoch
select tenant, key from paidonce.job
where cancel and owner = $1 and owner_epoch = $2 and state <> 'unknown'
