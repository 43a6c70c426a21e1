-- id, epoch
select exists (select 1 from paidonce_worker where id = ? and epoch = ? and closed_at is null)
