-- Running jobs of a worker that a person flagged, of all tenants.
-- owner, epoch
select tenant, key from paidonce_job where state in ('ready', 'running', 'unknown') and state = 'running' and owner = ? and owner_epoch = ? and cancel
