-- Running jobs of a worker that a person flagged, of all tenants.
-- $1 id, $2 epoch
select tenant, key from paidonce.job
where state = 'running' and owner = $1 and owner_epoch = $2 and cancel
