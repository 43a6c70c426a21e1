-- The job's input is stored now. A claim carried by the ledger makes it the ledger's.
-- $1 whether the claim is, $2 tenant, $3 job, $4 fence, $5 what the input's row holds
with up as (
  update paidonce.job b set input_kept = true, carrier = case when $1 then 'ledger' else b.carrier end
  where b.tenant = $2 and b.id = $3 and b.fence = $4 and b.state = 'running' and not b.input_kept
  returning b.tenant, b.id, b.part_on, b.carrier
), inp as (
  insert into paidonce.input (tenant, job, part_on, body)
  select tenant, id, part_on, $5 from up
)
select carrier from up
