"""The hand-written words: nouns by kind, verbs by frame, adjectives by what they describe, adverbs, names.

Within a list the order is the rank: the first words are the frequent ones. A word may be in several lists;
*plan*, *report* or *water* are nouns and verbs, *orange* and *secret* nouns and adjectives, and only the
sentence around them decides which.
"""

COUNT_NOUNS = {
    "person": """man woman friend child cook teacher neighbor farmer doctor baker student king guard sailor queen
        painter writer soldier singer thief boy girl mayor clerk judge lawyer nurse driver poet tailor guest stranger
        priest gardener dancer butler cousin uncle aunt brother sister mother father captain pilot plumber barber
        carpenter butcher miller fisherman shepherd librarian professor scientist engineer actor waiter hunter
        merchant trader knight wizard witch prince duke detective juggler clown magician violinist drummer pianist
        acrobat beekeeper postman hermit pirate apprentice orphan twin widow hero coach referee novice patient human
        rival visitor tourist passenger voter editor critic translator inspector dentist bricklayer grandmother
        grandfather nephew niece watchman innkeeper astronomer goldsmith banker porter spy ghost giant dwarf
        ambassador secretary tutor""",
    "animal": """cat dog horse bird cow goat sheep pig duck fox rabbit bear wolf mouse fish goose hen owl frog parrot
        donkey rooster squirrel hedgehog toad snail turtle crow pigeon swan mule camel monkey badger otter beaver lion
        tiger whale dolphin spider bee ant beetle butterfly moth lizard snake deer moose ox calf lamb kitten puppy pony
        walrus penguin seal crab rat weasel heron""",
    "group": """team family committee crowd band army council choir crew class club company government jury gang
        audience orchestra guild tribe party staff""",
    "food": """cake apple pie egg potato orange onion pear plum cherry lemon carrot sausage pancake biscuit sandwich
        omelette loaf pudding dumpling noodle turnip cabbage pumpkin radish mushroom walnut peach fig melon tart bun
        waffle pickle muffin apricot chestnut""",
    "tool": """knife spoon hammer telescope rope stick fork brush ladder key lantern net broom shovel saw needle pencil
        pen ruler candle torch mirror umbrella whistle rake drill sponge mop kettle lens magnet compass hook feather
        axe wrench pole crowbar stopwatch thermometer thimble chisel""",
    "wear": """hat coat scarf glove boot shirt cloak mask wig cap jacket apron crown necklace ring belt dress uniform
        sweater vest slipper badge ribbon sash turban kilt sandal robe""",
    "trait": """beard smile nose voice mustache limp scar ponytail accent tattoo grin frown cough""",
    "thing": """book letter door window clock picture map car boat train ship bell piano drum violin wheel coin ticket
        newspaper painting drawing statue stone bicycle wagon cart flute trumpet notebook machine engine toy doll kite
        puzzle balloon button parcel envelope stamp card poster sign flag fence gate chimney oven stove tent anchor
        sail oar pillow curtain blanket cushion teapot vase lamp camera radio bridge plant flower tree leaf watch
        light tool pipe sculpture diary dictionary rocket pump clarinet""",
    "furniture": """table chair shelf desk bench bed sofa carpet cupboard stool counter mantelpiece""",
    "container": """box bag basket bottle bowl cup bucket barrel chest drawer suitcase trunk jar sack crate pot""",
    "place": """house garden village town kitchen market river city forest hill school library street park harbor
        castle church farm field road mountain tower palace island beach lake valley barn cellar attic desert cave hotel
        inn bakery shop station museum theater hospital prison office factory mill mine square cottage courtyard
        balcony hall stable greenhouse orchard meadow pond swamp canyon lighthouse port temple studio workshop
        basement garage tavern zoo bank cabin pier cemetery quarry laboratory""",
    "event": """party meeting wedding storm race concert dance lecture dinner lunch breakfast trial battle election
        festival game walk match visit lesson play strike search picnic parade funeral contest auction ceremony journey
        voyage flood fire earthquake rehearsal interview holiday feast tournament eclipse sale swim escape attack march
        drive""",
    "idea": """plan idea question story answer problem report song secret rule joke promise mistake reason dream
        proposal offer call request order look theory shout poem novel opinion debate rumor complaint claim warning cry
        laugh wish riddle recipe method habit decision excuse fact law argument agreement message speech tale legend
        bargain error doubt hope fear change test task job lie guess prediction prophecy discovery invention contract
        letter study suggestion objection remark whisper kiss sketch mark""",
    "time": """day week month year night hour morning winter evening summer minute weekend autumn""",
}

MASS_NOUNS = {
    "food": """soup bread cheese tea rice butter honey milk coffee jam porridge stew salt pepper sugar mustard garlic
        ginger juice lemonade cider flour cream toast cocoa marmalade""",
    "stuff": """water paper wood sand gold snow silver glass mud smoke paint ink dust oil wool silk clay grass iron
        straw chalk soap wax gravel""",
    "idea": """music advice work courage luck wisdom trouble silence laughter patience nonsense gossip poetry
        evidence magic grammar history weather""",
}

# frame | kinds of subject | kinds of object | scene, which decides the prepositional phrases |
# and below it the verbs. Frames are defined in clauses.py; look_at and pick_up include their preposition or particle.
VERBS = """
vt | person group | food | eating |
    eat cook taste bake order share finish serve slice peel swallow chew fry boil spill stir devour grill cut burn
vt | animal | food | eating |
    eat find steal swallow smell chew devour sniff bury
vt | person | thing container furniture tool wear | handling |
    find carry buy sell break repair paint make clean hold want need move drop lose hide build wash return use keep
    bring steal push pull lift borrow throw measure examine polish collect draw fix wrap burn bury design count copy
    destroy deliver inspect touch kick mend weigh decorate sketch own photograph order bend dust hang sweep water
    hammer
vt | person | container | handling |
    open close fill pack empty unpack lock unlock seal label
vt | person | wear | handling |
    wear mend sew wash borrow iron fold brush
vt | person group | stuff | handling |
    use need collect buy find carry pour melt spill sell waste
vt | animal | thing container tool wear stuff | handling |
    find break chew hide follow destroy scratch kick sniff guard knock
vt | person | person animal thing place event | seeing |
    see watch hear notice remember observe spot recognize study follow describe overhear film photograph admire
vt | animal | person animal thing place | seeing |
    see watch hear notice find smell remember
vt | person group | person group | social |
    help meet like know thank love call hate trust visit invite blame praise fear annoy avoid greet ignore follow
    marry hire fire chase rescue tease reward punish hug kiss mock frighten respect admire interrupt interview cheat
vt | person | animal | social |
    feed like love chase catch train buy follow rescue wash tame brush ride hunt sketch
vt | animal | person animal | social |
    chase bite follow frighten like watch hunt attack lick scratch wake
vt | person group | person group | telling |
    ask warn remind question tell teach consult inform advise
vt | person group | idea | thinking |
    write read explain hear forget study discuss reject accept understand answer present plan solve support repeat
    consider invent doubt dismiss publish translate approve test change recite revise report question record whisper
    defend love hate
vt | person animal | place | moving |
    leave enter reach visit find cross search explore guard
vt | person group | place | handling |
    clean build paint rent own design sell buy decorate flood
vt | person group | event | thinking |
    attend plan enjoy miss win organize watch cancel postpone host interrupt ruin celebrate lose
vt | idea event | person group | affecting |
    surprise worry annoy please help amuse bore delight confuse shock tire bother interest encourage disappoint
    impress puzzle
vt | thing stuff food tool | person | affecting |
    surprise amuse annoy please delight bother confuse disgust
vt | place group | person group | affecting |
    attract need welcome inspire scare depress
v | person group | - | being |
    sleep smile laugh wait work arrive sing dance cry shout rest fish whisper listen wake sneeze sigh snore nod
    blush pause hesitate bow kneel stumble tremble dream yawn cough faint disagree vanish pray cheat practice escape
    retire sketch
v | animal | - | being |
    sleep run jump hide eat rest escape howl yawn swim vanish graze bark play fly drink snore sneeze
v | thing furniture container tool wear food stuff | - | happening |
    fall burn break vanish disappear sink roll shine leak rust squeak rattle float explode melt smell shake creak
v | idea | - | happening |
    fail work matter change spread succeed help
v | event | - | happening |
    begin end start happen continue fail finish last
v | place | - | happening |
    burn sleep flood flourish change sink wait
vm | person group animal | place | moving |
    go walk run travel return come hurry move sail ride fly swim march climb drive wander crawl rush row hop creep
    stroll
vd | person group | thing food tool wear container | giving |
    give send show sell offer bring lend hand buy pay mail throw
vd | person group | idea | giving |
    tell teach read show send offer sing
vc | person group | - | thinking |
    say think know believe hope claim report suggest admit announce insist explain notice suspect fear doubt promise
    argue predict guess swear mention dream forget remember decide pretend
vq | person group | - | thinking |
    wonder ask know forget discover guess remember explain check decide
vi | person group | - | thinking |
    want try need hope plan like decide promise refuse learn agree offer fail begin start manage expect prefer
    threaten love forget
vi | animal | - | being |
    want try like begin start refuse learn
vo | person group | person animal group | telling |
    ask tell order force invite allow help persuade encourage warn teach advise expect remind want
vg | person group | - | being |
    enjoy keep stop avoid start finish begin love hate practice consider miss like
va | person group animal | - | being |
    seem look feel become sound remain stay appear grow
va | thing furniture container tool wear place idea event stuff | - | happening |
    seem look remain become appear sound
va | food | - | happening |
    taste smell look seem become
vp | person group | person animal thing event place idea | thinking |
    look_at talk_about think_about laugh_at dream_of wait_for complain_about worry_about care_for search_for
    point_at write_about shout_at read_about pay_for
vp | person group | person group | social |
    talk_to argue_with listen_to rely_on wait_for smile_at shout_at wave_at work_for believe_in
vp | animal | person animal | social |
    look_at bark_at wait_for run_after jump_on play_with listen_to stare_at
vr | person | thing container tool | handling |
    pick_up throw_away put_down knock_over take_out carry_off clean_up tear_down wrap_up hand_over
vr | person | wear | handling |
    put_on take_off
vr | person group | idea | thinking |
    write_down give_up carry_out think_over look_up make_up point_out
vr | person | person animal | social |
    wake_up call_up lock_up cheer_up chase_away
"""

ADJECTIVES = {
    "any": """old new small big strange little famous great beautiful ordinary odd good terrible lovely ugly funny silly
        wonderful remarkable curious dull bad mysterious splendid ridiculous magnificent peculiar dreadful charming
        unusual typical perfect horrible legendary average ideal""",
    "person": """young happy kind clever tall sad angry poor rich tired brave hungry lazy polite rude honest proud shy
        nervous cheerful grumpy gentle wise foolish calm jealous patient lonely stubborn careful careless quiet noisy
        loyal greedy sleepy busy modest generous cruel bald elderly eager weary bold cautious fierce friendly
        thoughtful talented confident anxious merry humble idle stern gloomy witty timid sincere skillful forgetful
        graceful clumsy curious respectable human drunk restless superstitious courageous mischievous ambitious""",
    "animal": """wild tame hungry fat thin quick furry fierce sleepy lazy spotted striped clever hairy woolly playful
        loud swift graceful timid cunning skinny slow""",
    "thing": """red heavy wooden blue green dusty black white yellow cheap expensive dirty clean empty round sharp shiny
        rusty golden brown light silver gray purple flat useful useless narrow wide thick thin loose tight wet dry
        smooth rough soft hard fragile sturdy wobbly crooked modern ancient enormous tiny huge portable colorful pale
        dark bright square orange plastic electric antique delicate mechanical metallic blunt hollow spare""",
    "food": """hot cold fresh sweet sour salty bitter stale delicious tasty ripe rotten spicy crisp warm creamy raw
        juicy mild crunchy bland sticky burnt frozen greasy""",
    "place": """quiet crowded distant noisy green busy sunny deserted peaceful nearby foggy windy rural remote dark cosy
        spacious gloomy muddy steep medieval damp safe dangerous northern southern coastal haunted abandoned cold""",
    "idea": """secret simple clever difficult important easy serious absurd brilliant interesting boring false true
        vague clear honest complicated impossible reasonable foolish original sensible official practical logical
        private public daily strict final wise dangerous hopeless poetic popular controversial scientific romantic""",
    "event": """long short noisy annual sudden brief secret disastrous memorable dramatic festive endless peaceful
        expensive boring early late cheerful musical chaotic""",
}

ADVERBS = {
    "manner": """quickly slowly quietly carefully loudly well happily badly secretly gently fast proudly politely hard
        patiently calmly sadly angrily eagerly nervously bravely cheerfully softly clumsily wisely gracefully together
        greedily alone sleepily stubbornly lazily foolishly rudely honestly generously cautiously boldly silently""",
    "frequency": """always often never usually sometimes rarely seldom still almost hardly""",
    "middle": """already never finally just always soon probably certainly still really secretly""",
    "sentence": """suddenly finally perhaps luckily fortunately sadly soon later meanwhile usually sometimes
        afterwards strangely obviously clearly unfortunately naturally surprisingly apparently early""",
    "place": """here there outside inside upstairs everywhere nearby downstairs abroad""",
    "time": """again now early late soon later daily""",
    "attributive": """very rather quite really extremely fairly remarkably terribly""",
    "degree": """very quite rather too so really extremely fairly terribly remarkably surprisingly""",
}

# adjective and preposition with its kinds of object; adjectives with an infinitive
ADJECTIVE_PPS = """proud_of:person afraid_of:animal fond_of:food angry_with:person full_of:stuff famous_for:idea
    jealous_of:person ready_for:event tired_of:event responsible_for:idea kind_to:person worried_about:idea
    interested_in:idea suspicious_of:person allergic_to:animal grateful_for:food"""
ADJECTIVES_TO = "ready happy eager able afraid likely glad free unable sorry proud willing reluctant determined"
ADJECTIVES_IT = """clear possible true obvious likely strange sad good important certain odd lucky surprising unlikely
    unfair doubtful well-known"""
ADJECTIVES_HARD = (
    "easy hard difficult dangerous impossible good wise rude foolish fun important necessary pleasant safe"
)

# Verbs of state: no one is owning a hat, rewants it, is a knower of it, or finds it needable.
STATIVE = """know like love hate own need want keep remember understand enjoy miss lose doubt fear trust respect
    interest"""
# Adjectives for people that have no adverb.
WITHOUT_ADVERB = "young tall poor rich bald human drunk elderly"
# Adjectives that take un-, and nouns that take -less, by what they then describe.
UN_PERSON = "happy kind wise friendly loyal helpful grateful musical cheerful"
UN_IDEA = "important clear true reasonable official scientific popular original"
LESS_PLACE = "tree river window door bird road bridge water roof gate wind snow"

CONJUNCTIONS = "because when while after before although until if since unless as"
PATHS = "to into through across from towards around along past"
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
MONTHS = "May June October January March September July April December August February November"
TITLES = "Captain Doctor Professor King Uncle Queen Judge Aunt Mayor Prince"
UNITS = "coin shilling pound foot yard inch mile dollar crown penny"
NUMBER_WORDS = "two three four five ten six seven twelve eight twenty nine thirty eleven fifty ninety forty sixty"

# Names are composed: every beginning with every ending.
GIVEN_NAMES = (
    "Mar Al El Ro Jo Tam Ned Lin Os Wil Hen Bar Fen Ev Gus Per Cor Dor Han Vel",
    "la vin sie bert ric na by win ton a mund ette ley",
)
FAMILY_NAMES = (
    "Tob Ash Cro Wig Bram Pud Fin Stock Hob Grim Pen Lark Thorn Mud Kettle Quil Rum Sorrel Bun Drake",
    "in ley ton worth well man by gate more dle wick kins field",
)
PLACE_NAMES = (
    "Den Old Hart Wex Nor Sal Brin Tarn Quar Mil Fern Gold Dun Lang Wol Hay Rook Swin Ot Harrow",
    "by ford ham ley bury mouth stead wick ville ton holm dale",
)
