-- $1 id, $2 epoch
select exists (select from paidonce.worker where id = $1 and epoch = $2 and closed_at is null) as open
