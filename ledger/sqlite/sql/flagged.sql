-- Running jobs of a worker that a person flagged, of all tenants. Only running and unknown ones have an owner.
-- owner, epoch
select tenant, key from paidonce_job where cancel and owner = ? and owner_epoch = ? and state <> 'unknown'
